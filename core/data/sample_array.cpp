#include "ulpscope/core/data/sample_array.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 18;    // a block, at least
constexpr int64_t kWindowBytes = int64_t{1} << 26;   // the blocks in memory, about
constexpr int64_t kMostElements = int64_t{1} << 31;  // of a sample

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, " x ")); }

// Of one sample. A number alone is one feature.
std::vector<int64_t> sample_shape(const SampleArray& array) {
  const std::vector<int64_t>& shape = array.shape();
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    throw unreadable_error("{}: empty, of shape {}; expected at least one sample", array.name(), shape_text(shape));
  if (shape[0] > kMostCounted)
    throw unreadable_error("{}: of shape {}; expected at most 2^40 samples", array.name(), shape_text(shape));
  int64_t elements = 1;
  for (auto extent = shape.begin() + 1; extent != shape.end(); ++extent) {
    if (*extent > kMostElements / elements)
      throw unreadable_error("{}: of shape {}; expected samples of at most 2^31 elements", array.name(), shape_text(shape));
    elements *= *extent;
  }
  if (shape.size() == 1) return {1};
  return {shape.begin() + 1, shape.end()};
}

enum class Use : uint8_t { inputs, input_indices, labels, values };

// An array, and what its numbers become: indices below `limit`, or, where that is 0, (number - mean) / std.
struct Part {
  std::shared_ptr<const SampleArray> array;
  std::vector<int64_t> shape;  // of one sample
  Use use = Use::inputs;
  int64_t limit = 0;
  std::optional<int64_t> ignored = {};  // a label beside those
  double mean = 0, std = 1;

  size_t elements() const {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    return count;
  }
  int64_t sample_bytes() const { return static_cast<int64_t>(elements() * (limit > 0 ? sizeof(int64_t) : sizeof(float))); }
};

// Samples one after another: floats, or indices.
struct Numbers {
  std::vector<float> values;
  std::vector<int64_t> indices;
};

// Reads samples of a part, with every number checked.
class PartReader {
 public:
  explicit PartReader(const Part& part) : part_(part) {}

  void read(int64_t first, int64_t count, Numbers& out) {
    raw_.resize(static_cast<size_t>(count) * part_.elements());
    part_.array->read(first, count, raw_.data());
    part_.limit > 0 ? take_indices(first, out.indices) : take_values(first, out.values);
  }

 private:
  void take_indices(int64_t first, std::vector<int64_t>& indices) {
    indices.resize(raw_.size());
    for (size_t i = 0; i < raw_.size(); ++i) {
      if (!LabelRange{part_.limit, part_.ignored}.contains(raw_[i])) fail(first, i);
      indices[i] = static_cast<int64_t>(raw_[i]);
    }
  }
  // Computed in FP64 and rounded once.
  void take_values(int64_t first, std::vector<float>& values) {
    values.resize(raw_.size());
    for (size_t i = 0; i < raw_.size(); ++i) {
      const double value = (raw_[i] - part_.mean) / part_.std;
      values[i] = static_cast<float>(value);
      if (std::isinf(values[i]) && std::isfinite(raw_[i])) fail(first, i);
    }
  }
  [[noreturn]] void fail(int64_t first, size_t at) const {
    const size_t elements = part_.elements();
    const std::string element = elements > 1 ? fmt::format("element {} of ", at % elements) : "";
    const std::string where = fmt::format("{}sample {}", element, first + static_cast<int64_t>(at / elements));
    if (part_.use == Use::labels) {
      throw unreadable_error("{}: the label of {} is {}, expected {}", part_.array->name(), where, raw_[at],
                             LabelRange{part_.limit, part_.ignored}.text());
    }
    if (part_.use == Use::input_indices) {
      throw unreadable_error("{}: the index of {} is {}, expected 0 to {} for data.input_indices = {}", part_.array->name(), where,
                             raw_[at], part_.limit - 1, part_.limit);
    }
    throw unreadable_error("{}: {} is {}, expected what FP32 can hold{}", part_.array->name(), where, raw_[at],
                           part_.mean != 0 || part_.std != 1 ? " after data.mean and data.std" : "");
  }

  const Part& part_;
  std::vector<double> raw_;
};

class ArrayDataset : public Dataset {
 public:
  // Samples [first, last) of two arrays of as many.
  ArrayDataset(Part inputs, Part targets, int64_t first, int64_t last)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        input_reader_(inputs_),
        target_reader_(targets_),
        first_(first),
        last_(last),
        target_shape_(targets_.shape) {
    if (targets_.limit > 0 && target_shape_ == std::vector<int64_t>{1}) target_shape_.clear();
    const int64_t chunk = inputs_.array->chunk(), bytes = inputs_.sample_bytes() + targets_.sample_bytes();
    locality_.block = chunk * std::max<int64_t>(1, kBlockBytes / bytes / chunk);
    locality_.window =
        std::clamp<int64_t>(kWindowBytes / (bytes * locality_.block), 2, std::max<int64_t>(2, kMostShuffled / locality_.block));
  }

  int64_t size() const override { return last_ - first_; }
  const std::vector<int64_t>& input_shape() const override { return inputs_.shape; }
  const std::vector<int64_t>& target_shape() const override { return target_shape_; }
  int64_t input_indices() const override { return inputs_.limit; }
  TargetKind target_kind() const override { return targets_.limit > 0 ? TargetKind::labels : TargetKind::values; }
  int64_t classes() const override { return targets_.limit; }
  Locality locality() const override { return locality_; }
  std::vector<SourceInfo> sources() const override {
    return {source_of(*inputs_.array, kInputsPart), source_of(*targets_.array, kTargetsPart)};
  }

  void prefetch(std::span<const int64_t> blocks) const override {
    for (const int64_t block : blocks) touch(block);
    for (const int64_t block : blocks) load(block);
  }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    const auto set_shape = [&](std::vector<int64_t>& shape, const std::vector<int64_t>& sample) {
      shape.assign(1, static_cast<int64_t>(indices.size()));
      shape.insert(shape.end(), sample.begin(), sample.end());
    };
    set_shape(batch.input_shape, inputs_.shape);
    set_shape(batch.target_shape, target_shape_);
    resize(batch.inputs, batch.indices, inputs_, indices.size());
    resize(batch.values, batch.labels, targets_, indices.size());

    // In the order of the file, and what is in memory is not put out before it was used.
    places_.clear();
    for (size_t i = 0; i < indices.size(); ++i) places_.emplace_back(indices[i], i);
    std::sort(places_.begin(), places_.end());
    for (const auto& [sample, place] : places_) touch(sample / locality_.block);
    for (const auto& [sample, place] : places_) {
      const Block& block = load(sample / locality_.block);
      const auto within = static_cast<size_t>(sample % locality_.block);
      copy(block.inputs, within, inputs_, batch.inputs, batch.indices, place);
      copy(block.targets, within, targets_, batch.values, batch.labels, place);
    }
  }

 private:
  struct Block {
    int64_t number = -1;
    uint64_t used = 0;
    Numbers inputs, targets;
  };

  SourceInfo source_of(const SampleArray& array, const char* part) const {
    SourceInfo source = array.source();
    source.part = part;
    source.samples = static_cast<uint64_t>(size());
    source.first_row += static_cast<uint64_t>(first_) * source.row_step;
    source.first_byte += static_cast<uint64_t>(first_) * source.byte_step;
    return source;
  }

  static void resize(std::vector<float>& values, std::vector<int64_t>& indices, const Part& part, size_t samples) {
    const size_t size = samples * part.elements();
    values.resize(part.limit > 0 ? 0 : size);
    indices.resize(part.limit > 0 ? size : 0);
  }
  static void copy(const Numbers& from, size_t sample, const Part& part, std::vector<float>& values, std::vector<int64_t>& indices,
                   size_t place) {
    const size_t size = part.elements();
    if (part.limit > 0) {
      std::copy_n(from.indices.begin() + static_cast<std::ptrdiff_t>(sample * size), size,
                  indices.begin() + static_cast<std::ptrdiff_t>(place * size));
    } else {
      std::copy_n(from.values.begin() + static_cast<std::ptrdiff_t>(sample * size), size,
                  values.begin() + static_cast<std::ptrdiff_t>(place * size));
    }
  }

  // A block that is in memory stays there for now.
  void touch(int64_t number) const {
    if (const auto found = places_of_blocks_.find(number); found != places_of_blocks_.end()) blocks_[found->second].used = ++uses_;
  }

  // The block, which takes the place of the one that was not used for longest.
  const Block& load(int64_t number) const {
    if (const auto found = places_of_blocks_.find(number); found != places_of_blocks_.end()) return blocks_[found->second];
    size_t place = blocks_.size();
    if (place < static_cast<size_t>(locality_.window)) {
      blocks_.emplace_back();
    } else {
      const auto oldest =
          std::min_element(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) { return a.used < b.used; });
      place = static_cast<size_t>(oldest - blocks_.begin());
      places_of_blocks_.erase(oldest->number);
    }
    Block& block = blocks_[place];
    block.number = -1;
    const int64_t begin = first_ + number * locality_.block, count = std::min(locality_.block, last_ - begin);
    input_reader_.read(begin, count, block.inputs);
    target_reader_.read(begin, count, block.targets);
    block.number = number;
    block.used = ++uses_;
    places_of_blocks_[number] = place;
    return block;
  }

  const Part inputs_, targets_;
  mutable PartReader input_reader_, target_reader_;
  int64_t first_, last_;
  std::vector<int64_t> target_shape_;
  Locality locality_;
  mutable std::vector<Block> blocks_;
  mutable std::unordered_map<int64_t, size_t> places_of_blocks_;
  mutable uint64_t uses_ = 0;
  mutable std::vector<std::pair<int64_t, size_t>> places_;  // of a batch
};

// Reads all of a part once.
void check_all(const Part& part) {
  const int64_t samples = part.array->shape()[0], chunk = part.array->chunk();
  const int64_t count = chunk * std::max<int64_t>(1, kBlockBytes / part.sample_bytes() / chunk);
  PartReader reader(part);
  Numbers numbers;
  for (int64_t first = 0; first < samples; first += count) reader.read(first, std::min(count, samples - first), numbers);
}

struct Parts {
  Parts(const DataSettings& settings, const DataUse& use, ArrayPair arrays)
      : inputs{arrays.inputs, sample_shape(*arrays.inputs)}, targets{arrays.targets, sample_shape(*arrays.targets)} {
    if (samples() != targets.array->shape()[0]) {
      throw unreadable_error("{}: expected as many targets as {} has inputs, {}, found {}", targets.array->name(),
                             inputs.array->name(), samples(), targets.array->shape()[0]);
    }
    targets.use = Use::values;
    if (settings.input_indices > 0) {
      inputs.use = Use::input_indices;
      inputs.limit = settings.input_indices;
      check_all(inputs);
    } else {
      inputs.mean = settings.mean;
      inputs.std = settings.std;
    }
    if (settings.target_kind == TargetKind::labels) {
      targets.use = Use::labels;
      targets.limit = settings.classes;
      targets.ignored = use.ignored_label;
      check_all(targets);
    }
  }
  int64_t samples() const { return inputs.array->shape()[0]; }
  // At most `limit` of the samples [first, last); 0: all of them.
  std::unique_ptr<Dataset> dataset(int64_t first, int64_t last, int64_t limit) const {
    return std::make_unique<ArrayDataset>(inputs, targets, first, limit > 0 ? std::min(last, first + limit) : last);
  }

  Part inputs, targets;
};

void check_same_samples(const Part& train, const Part& test) {
  if (train.shape == test.shape) return;
  throw unreadable_error("{}: expected samples of {} as in {}, found {}", test.array->name(), shape_text(train.shape),
                         train.array->name(), shape_text(test.shape));
}

}  // namespace

std::string LabelRange::text() const {
  const std::string range = fmt::format("0 to {} for {} classes (data.classes)", classes - 1, classes);
  return ignored ? fmt::format("{}, or {} (loss.ignore_index)", range, *ignored) : range;
}

DataSplits open_arrays(const DataSettings& settings, const DataUse& use, ArrayPair train, ArrayPair test) {
  const Parts parts(settings, use, std::move(train));
  DataSplits splits;
  const int64_t all = parts.samples();
  const auto cut = test.inputs ? all : all - static_cast<int64_t>(static_cast<double>(all) * settings.test_share);
  splits.train = parts.dataset(0, cut, settings.train_size);
  if (test.inputs) {
    const Parts others(settings, use, std::move(test));
    check_same_samples(parts.inputs, others.inputs);
    check_same_samples(parts.targets, others.targets);
    splits.test = others.dataset(0, others.samples(), settings.test_size);
  } else if (cut < all) {
    splits.test = parts.dataset(cut, all, settings.test_size);
  }
  splits.description = fmt::format("{}: {} training and {} test samples of {}", parts.inputs.array->name(), splits.train->size(),
                                   splits.test ? splits.test->size() : 0, shape_text(parts.inputs.shape));
  return splits;
}

}  // namespace ulpscope
