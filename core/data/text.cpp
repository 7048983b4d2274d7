// Text as bytes: a sample is a run of bytes, its targets the bytes that follow each of them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;

// Part of a mapped file.
struct Passage {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  int64_t begin = 0, end = 0;
};

class TextDataset : public Dataset {
 public:
  // At most `limit` samples; 0: all.
  TextDataset(std::vector<Passage> passages, int64_t context, int64_t stride, int64_t limit)
      : passages_(std::move(passages)), shape_{context}, stride_(stride), limit_(limit) {
    for (const Passage& passage : passages_) {
      // The byte after the last of a sample is a target.
      const int64_t room = passage.end - passage.begin - context - 1;
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + (room < 0 ? 0 : room / stride + 1));
    }
  }

  int64_t size() const override {
    const int64_t all = ends_.empty() ? 0 : ends_.back();
    return limit_ > 0 ? std::min(limit_, all) : all;
  }
  const std::vector<int64_t>& input_shape() const override { return shape_; }
  const std::vector<int64_t>& target_shape() const override { return shape_; }
  TargetKind target_kind() const override { return TargetKind::labels; }
  int64_t classes() const override { return kBytes; }
  int64_t input_indices() const override { return kBytes; }
  Locality locality() const override { return kAnywhere; }
  // A file has no rows, and so those of its samples do not move on.
  std::vector<SourceInfo> sources() const override {
    std::vector<SourceInfo> sources;
    int64_t begin = 0;
    for (size_t i = 0; i < passages_.size(); ++i) {
      const int64_t end = std::min(ends_[i], size());
      if (end > begin) {
        SourceInfo source = source_in(passages_[i].path);
        source.first_sample = static_cast<uint64_t>(begin);
        source.samples = static_cast<uint64_t>(end - begin);
        source.row_step = 0;
        source.first_byte = static_cast<uint64_t>(passages_[i].begin);
        source.byte_step = static_cast<uint64_t>(stride_);
        sources.push_back(std::move(source));
      }
      begin = std::max(begin, end);
    }
    return sources;
  }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    const int64_t context = shape_[0];
    batch.input_shape = batch.target_shape = {static_cast<int64_t>(indices.size()), context};
    batch.inputs.clear();
    batch.values.clear();
    batch.indices.resize(indices.size() * static_cast<size_t>(context));
    batch.labels.resize(batch.indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto found = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), indices[i]) - ends_.begin());
      const Passage& passage = passages_[found];
      const int64_t first = indices[i] - (found == 0 ? 0 : ends_[found - 1]);
      const uint8_t* bytes = passage.file->bytes().data() + passage.begin + first * stride_;
      const size_t to = i * static_cast<size_t>(context);
      std::copy(bytes, bytes + context, batch.indices.begin() + static_cast<std::ptrdiff_t>(to));
      std::copy(bytes + 1, bytes + 1 + context, batch.labels.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }

 private:
  std::vector<Passage> passages_;
  std::vector<int64_t> ends_;  // the samples of all passages up to this one
  std::vector<int64_t> shape_;
  int64_t stride_, limit_;
};

// The file, or the files of the folder in the order of their names; links in it are passed over, as they would be read twice.
std::vector<std::string> files_at(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;  // what cannot be looked at is no file
    if (!entry->is_symlink(ignored) && entry->is_regular_file(ignored)) files.push_back(entry->path().string());
  }
  if (error) throw unreadable_error("data.path: cannot read the folder '{}': {}", path, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

DataSplits open_text(const DataSettings& settings, const DataUse&) {
  if (settings.path.empty()) throw usage_error("data.path: text needs a file or a folder");
  std::vector<Passage> train, test;
  int64_t bytes = 0;
  for (const std::string& path : files_at(settings.path)) {
    const auto file = std::make_shared<const MappedFile>(path);
    const auto size = static_cast<int64_t>(file->bytes().size());
    const int64_t cut = size - static_cast<int64_t>(static_cast<double>(size) * settings.test_share);
    train.push_back({path, file, 0, cut});
    test.push_back({path, file, cut, size});
    bytes += size;
  }
  const int64_t stride = settings.stride > 0 ? settings.stride : settings.context;
  DataSplits splits;
  auto train_split = std::make_unique<TextDataset>(std::move(train), settings.context, stride, settings.train_size);
  auto test_split = std::make_unique<TextDataset>(std::move(test), settings.context, settings.context, settings.test_size);
  if (train_split->size() == 0)
    throw unreadable_error(
        "'{}': expected a file with more than data.context = {} bytes beside its test split (data.test_share = {}), "
        "found none in {} bytes; folders within a folder are not read",
        settings.path, settings.context, settings.test_share, bytes);
  splits.description = fmt::format("text of {} bytes in {}: {} training and {} test samples of {} bytes", bytes, settings.path,
                                   train_split->size(), test_split->size(), settings.context);
  splits.train = std::move(train_split);
  if (test_split->size() > 0) splits.test = std::move(test_split);
  return splits;
}

}  // namespace ulpscope
