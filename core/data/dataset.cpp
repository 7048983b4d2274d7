#include "ulpscope/core/data/dataset.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <type_traits>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/data/data_files.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

struct DataSource {
  const char* name;
  DataSplits (*open)(const DataSettings& settings, const DataUse& use);
  std::span<const std::string_view> keys;  // as keys_of gives them
  PathKeys paths = {};                     // as path_keys gives them
};
constexpr std::string_view kFashionKeys[] = {"path", "mean", "std", "train_size", "test_size"};
constexpr std::string_view kIdxKeys[] = {"train_images", "train_labels", "test_images", "test_labels", "mean",
                                         "std",          "train_size",   "test_size",   "classes"};
constexpr std::string_view kHdf5Keys[] = {"path",         "test_path",   "inputs",        "targets",   "test_inputs",
                                          "test_targets", "target_kind", "input_indices", "mean",      "std",
                                          "train_size",   "test_size",   "classes",       "test_share"};
constexpr std::string_view kNpyKeys[] = {"inputs", "targets", "test_inputs", "test_targets", "target_kind", "input_indices",
                                         "mean",   "std",     "train_size",  "test_size",    "classes",     "test_share"};
constexpr std::string_view kCsvKeys[] = {"path",          "test_path",   "header",        "delimiter", "target_columns",
                                         "input_columns", "target_kind", "input_indices", "mean",      "std",
                                         "train_size",    "test_size",   "classes",       "test_share"};
constexpr std::string_view kTextKeys[] = {"path", "context", "stride", "train_size", "test_size", "test_share"};
constexpr std::string_view kSineKeys[] = {"height", "width", "frequency", "levels"};
constexpr std::string_view kRandomKeys[] = {"shape", "classes", "train_size", "test_size"};
constexpr std::string_view kCopyKeys[] = {"context", "classes", "train_size", "test_size"};
using Data = DataSettings;
constexpr std::string Data::*kOnePath[] = {&Data::path}, Data::*kPathOfEachSplit[] = {&Data::path, &Data::test_path};
constexpr std::string Data::*kIdxPaths[] = {&Data::train_images, &Data::train_labels, &Data::test_images, &Data::test_labels};
constexpr std::string Data::*kNpyPaths[] = {&Data::inputs, &Data::targets, &Data::test_inputs, &Data::test_targets};
// In the order of DataKind.
constexpr DataSource kSources[] = {{"fashion_mnist", open_fashion_mnist, kFashionKeys, kOnePath},
                                   {"idx", open_idx, kIdxKeys, kIdxPaths},
                                   {"hdf5", open_hdf5, kHdf5Keys, kPathOfEachSplit},
                                   {"npy", open_npy, kNpyKeys, kNpyPaths},
                                   {"csv", open_csv, kCsvKeys, kPathOfEachSplit},
                                   {"text", open_text, kTextKeys, kOnePath},
                                   {"quantized_sine", make_quantized_sine, kSineKeys},
                                   {"random_classification", make_random_classification, kRandomKeys},
                                   {"copy_task", make_copy_task, kCopyKeys},
                                   {"capsule", open_capsule, {}}};

const DataSource& source_of(DataKind kind) { return kSources[static_cast<size_t>(kind)]; }

// The samples of another data set, each of them its own target.
class InputAsTarget : public Dataset {
 public:
  explicit InputAsTarget(std::unique_ptr<Dataset> data) : data_(std::move(data)) {
    if (data_->input_indices() != 0) throw usage_error("data.target: expected inputs that are values, the data has indices");
  }
  int64_t size() const override { return data_->size(); }
  const std::vector<int64_t>& input_shape() const override { return data_->input_shape(); }
  const std::vector<int64_t>& target_shape() const override { return data_->input_shape(); }
  TargetKind target_kind() const override { return TargetKind::values; }
  int64_t classes() const override { return 0; }
  Locality locality() const override { return data_->locality(); }
  void prepare(const WorkWatch& watch) const override { data_->prepare(watch); }
  void prefetch(std::span<const int64_t> blocks) const override { data_->prefetch(blocks); }
  std::vector<SourceInfo> sources() const override {
    std::vector<SourceInfo> sources = data_->sources();
    std::erase_if(sources, [](const SourceInfo& source) { return source.part == kTargetsPart; });
    for (SourceInfo& source : sources) source.part.clear();
    return sources;
  }
  int64_t origin_of(int64_t index) const override { return data_->origin_of(index); }
  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    data_->fill_batch(indices, batch);
    batch.labels.clear();
    batch.target_shape = batch.input_shape;
    batch.values = batch.inputs;
  }

 private:
  std::unique_ptr<Dataset> data_;
};

}  // namespace

const char* name_of(TargetKind kind) { return kind == TargetKind::labels ? "labels" : "values"; }

const char* name_of(DataKind kind) { return source_of(kind).name; }

std::span<const std::string_view> keys_of(DataKind kind) { return source_of(kind).keys; }

PathKeys path_keys(DataKind kind) { return source_of(kind).paths; }

DataIdentity identity_of(const Dataset& dataset) {
  constexpr int64_t kMostSamples = 16, kMostElements = 1 << 16;  // at either end
  const auto elements = [](const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  const int64_t of_sample = std::max<int64_t>(1, elements(dataset.input_shape()) + elements(dataset.target_shape()));
  const int64_t size = dataset.size(), count = std::min(size, std::clamp<int64_t>(kMostElements / of_sample, 1, kMostSamples));
  Batch batch;
  DataIdentity identity{size, hash_text("data")};
  const auto add = [&](uint64_t value) { identity.hash = hash_combine(identity.hash, value); };
  // Of a sample of more than that, what it begins with.
  const auto add_all = [&](const auto& values) {
    for (size_t i = 0; i < std::min<size_t>(values.size(), kMostElements); ++i) {
      if constexpr (std::is_same_v<decltype(values[i]), const float&>) {
        add(std::bit_cast<uint32_t>(values[i]));
      } else {
        add(static_cast<uint64_t>(values[i]));
      }
    }
  };
  for (const int64_t first : {int64_t{0}, size - count}) {
    std::vector<int64_t> samples(static_cast<size_t>(count));
    std::iota(samples.begin(), samples.end(), first);
    dataset.fill_batch(samples, batch);
    for (const auto* integers : {&batch.input_shape, &batch.indices, &batch.target_shape, &batch.labels}) add_all(*integers);
    for (const auto* reals : {&batch.inputs, &batch.values}) add_all(*reals);
  }
  return identity;
}

const char* name_of(TargetSource source) { return source == TargetSource::data ? "data" : "input"; }

DataSplits open_data(const DataSettings& settings, const DataUse& use) {
  DataSplits splits = source_of(settings.kind).open(settings, use);
  if (settings.target == TargetSource::input) {
    for (std::unique_ptr<Dataset>* split : {&splits.train, &splits.test})
      if (*split) *split = std::make_unique<InputAsTarget>(std::move(*split));
  }
  return splits;
}

Loader::Loader(const Dataset& dataset, const Options& options)
    : dataset_(dataset), options_(options), locality_(dataset.locality()) {
  if (options.batch_size < 1) throw usage_error("training.batch_size is {}, expected at least 1", options.batch_size);
  if (batches_per_epoch() == 0) {
    throw usage_error("training.batch_size is {}, expected at most the {} samples of the data while data.drop_last is true",
                      options.batch_size, dataset.size());
  }
}

int64_t Loader::batches_per_epoch() const {
  return (dataset_.size() + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
}

void Loader::seek(const LoaderPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch >= batches_per_epoch()) {
    throw usage_error("batch {} of epoch {}: expected a batch from 0 to {}", position.batch, position.epoch,
                      batches_per_epoch() - 1);
  }
  position_ = position;
}

namespace {

// Fisher and Yates, with the numbers of `random` from `first` on.
void shuffle(std::vector<int64_t>& items, const Philox& random, uint64_t first) {
  for (size_t i = items.size() - 1; i > 0; --i) std::swap(items[i], items[random.below(first + i, static_cast<uint32_t>(i + 1))]);
}

}  // namespace

void Loader::order_epoch(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  const int64_t count = (dataset_.size() - 1) / locality_.block + 1;
  blocks_.resize(static_cast<size_t>(count));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  if (options_.shuffle)
    shuffle(blocks_, Philox(options_.seed, hash_combine(hash_text("loader.blocks"), static_cast<uint64_t>(epoch))), 0);
  last_block_at_ = std::find(blocks_.begin(), blocks_.end(), count - 1) - blocks_.begin();
  ordered_epoch_ = epoch;
  ordered_window_ = -1;
}

// Its first sample's place in the epoch.
int64_t Loader::first_of_window(int64_t window) const {
  const int64_t blocks = std::min(window * locality_.window, static_cast<int64_t>(blocks_.size()));
  const int64_t missing = static_cast<int64_t>(blocks_.size()) * locality_.block - dataset_.size();
  return blocks * locality_.block - (last_block_at_ < blocks ? missing : 0);
}

void Loader::order_window(int64_t epoch, int64_t place) {
  order_epoch(epoch);
  int64_t window = place / (locality_.window * locality_.block);
  if (place >= first_of_window(window + 1)) ++window;
  if (ordered_window_ == window) return;
  const auto begin = blocks_.begin() + window * locality_.window;
  const auto end = begin + std::min<int64_t>(locality_.window, blocks_.end() - begin);
  window_blocks_.assign(begin, end);
  std::sort(window_blocks_.begin(), window_blocks_.end());
  order_.clear();
  for (const int64_t block : window_blocks_) {
    const int64_t first = block * locality_.block, last = std::min(first + locality_.block, dataset_.size());
    for (int64_t sample = first; sample < last; ++sample) order_.push_back(sample);
  }
  if (options_.shuffle) {
    const Philox random(options_.seed, hash_combine(hash_text("loader.shuffle"), static_cast<uint64_t>(epoch)));
    shuffle(order_, random, static_cast<uint64_t>(first_of_window(window)));
  }
  ordered_window_ = window;
  prefetched_ = false;
}

void Loader::next(Batch& batch) {
  const int64_t first = position_.batch * options_.batch_size, last = std::min(first + options_.batch_size, dataset_.size());
  order_window(position_.epoch, first);
  // A window that a batch only ends in waits for the next one, so that the blocks of the batch stay in memory.
  if (options_.shuffle && !prefetched_) dataset_.prefetch(window_blocks_);
  prefetched_ = true;
  batch.numbers.clear();
  for (int64_t place = first; place < last; place = first + static_cast<int64_t>(batch.numbers.size())) {
    order_window(position_.epoch, place);
    const auto from = order_.begin() + (place - first_of_window(ordered_window_));
    batch.numbers.insert(batch.numbers.end(), from, from + std::min<int64_t>(last - place, order_.end() - from));
  }
  dataset_.fill_batch(batch.numbers, batch);
  if (++position_.batch == batches_per_epoch()) position_ = {position_.epoch + 1, 0};
}

}  // namespace ulpscope
