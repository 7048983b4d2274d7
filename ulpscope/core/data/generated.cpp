// Data sets that are computed: a quantised sine over the unit square, classes that a random linear teacher tells apart, and
// sequences to copy.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

constexpr int64_t kTrainSize = 4096;
constexpr int64_t kTestSize = 1024;

class TableDataset : public Dataset {
 public:
  int64_t samples = 0;
  std::vector<int64_t> input, target;
  std::vector<float> inputs, values;
  std::vector<int64_t> labels;
  int64_t class_count = 0;

  int64_t size() const override { return samples; }
  const std::vector<int64_t>& input_shape() const override { return input; }
  const std::vector<int64_t>& target_shape() const override { return target; }
  TargetKind target_kind() const override { return class_count > 0 ? TargetKind::labels : TargetKind::values; }
  int64_t classes() const override { return class_count; }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    set_shape(indices, input, batch.input_shape);
    set_shape(indices, target, batch.target_shape);
    gather(indices, inputs, batch.inputs);
    gather(indices, values, batch.values);
    gather(indices, labels, batch.labels);
  }

 private:
  static void set_shape(std::span<const int64_t> indices, const std::vector<int64_t>& sample, std::vector<int64_t>& shape) {
    shape.assign(1, static_cast<int64_t>(indices.size()));
    shape.insert(shape.end(), sample.begin(), sample.end());
  }

  template <typename T>
  void gather(std::span<const int64_t> indices, const std::vector<T>& from, std::vector<T>& to) const {
    const size_t each = from.size() / static_cast<size_t>(samples);
    to.resize(indices.size() * each);
    for (size_t i = 0; i < indices.size(); ++i) {
      const T* sample = from.data() + static_cast<size_t>(indices[i]) * each;
      std::copy(sample, sample + each, to.data() + i * each);
    }
  }
};

std::unique_ptr<Dataset> make_random_split(const DataSettings& settings, uint64_t seed, std::string_view split, int64_t samples,
                                           const std::vector<double>& teacher) {
  auto data = std::make_unique<TableDataset>();
  data->samples = samples;
  data->input = settings.shape;
  data->class_count = settings.classes;
  const auto features =
      static_cast<size_t>(std::accumulate(settings.shape.begin(), settings.shape.end(), int64_t{1}, std::multiplies<>()));
  data->inputs.resize(static_cast<size_t>(samples) * features);
  data->labels.resize(static_cast<size_t>(samples));
  const Philox random(seed, hash_text(split));
  for (size_t i = 0; i < data->inputs.size(); ++i) data->inputs[i] = static_cast<float>(random.normal(i));
  for (size_t sample = 0; sample < data->labels.size(); ++sample) {
    const float* x = data->inputs.data() + sample * features;
    double best = -std::numeric_limits<double>::infinity();
    for (size_t label = 0; label < static_cast<size_t>(settings.classes); ++label) {
      const double* weights = teacher.data() + label * features;
      double score = 0;
      for (size_t k = 0; k < features; ++k) score += weights[k] * x[k];
      if (score > best) {
        best = score;
        data->labels[sample] = static_cast<int64_t>(label);
      }
    }
  }
  return data;
}

// Each symbol is computed where it is asked for.
class CopyTaskDataset : public Dataset {
 public:
  CopyTaskDataset(const DataSettings& settings, uint64_t seed, std::string_view split, int64_t samples)
      : random_(seed, hash_text(split)),
        samples_(samples),
        symbols_(settings.classes),
        input_{2 * settings.context},
        target_{settings.context} {}

  int64_t size() const override { return samples_; }
  const std::vector<int64_t>& input_shape() const override { return input_; }
  const std::vector<int64_t>& target_shape() const override { return target_; }
  int64_t input_indices() const override { return symbols_ + 1; }  // the last one starts the decoder's input
  TargetKind target_kind() const override { return TargetKind::labels; }
  int64_t classes() const override { return symbols_; }
  Locality locality() const override { return kAnywhere; }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    const int64_t length = target_[0], samples = static_cast<int64_t>(indices.size());
    batch.input_shape = {samples, 2 * length};
    batch.target_shape = {samples, length};
    batch.inputs.clear();
    batch.values.clear();
    batch.indices.resize(static_cast<size_t>(samples * 2 * length));
    batch.labels.resize(static_cast<size_t>(samples * length));
    auto input = batch.indices.begin();
    auto label = batch.labels.begin();
    for (const int64_t index : indices) {
      const auto source = input;
      for (int64_t place = 0; place < length; ++place)
        *input++ = random_.below(static_cast<uint64_t>(index) * static_cast<uint64_t>(length) + static_cast<uint64_t>(place),
                                 static_cast<uint32_t>(symbols_));
      *input++ = symbols_;
      input = std::copy(source, source + (length - 1), input);
      label = std::copy(source, source + length, label);
    }
  }

 private:
  Philox random_;
  int64_t samples_, symbols_;
  std::vector<int64_t> input_, target_;
};

}  // namespace

DataSplits make_quantized_sine(const DataSettings& settings, const DataUse&) {
  auto data = std::make_unique<TableDataset>();
  const int64_t height = settings.height, width = settings.width;
  data->samples = 1;
  data->input = {2, height, width};
  data->target = {1, height, width};
  const auto pixels = static_cast<size_t>(height * width);
  data->inputs.resize(2 * pixels);
  data->values.resize(pixels);
  const auto coordinate = [](int64_t i, int64_t n) { return n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.0; };
  const double turns = 2 * std::numbers::pi * settings.frequency;
  const auto levels = static_cast<double>(settings.levels);
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      const double x = coordinate(column, width), y = coordinate(row, height);
      const auto pixel = static_cast<size_t>(row * width + column);
      data->inputs[pixel] = static_cast<float>(x);
      data->inputs[pixels + pixel] = static_cast<float>(y);
      const double share = (std::sin(turns * x) * std::sin(turns * y) + 1) / 2;  // in [0, 1]
      data->values[pixel] = static_cast<float>(std::min(std::floor(share * levels), levels - 1) / (levels - 1));
    }
  }
  DataSplits splits;
  splits.train = std::move(data);
  splits.description =
      fmt::format("quantized sine: {} x {}, frequency {}, {} levels", height, width, settings.frequency, settings.levels);
  return splits;
}

DataSplits make_random_classification(const DataSettings& settings, const DataUse& use) {
  const auto features =
      static_cast<size_t>(std::accumulate(settings.shape.begin(), settings.shape.end(), int64_t{1}, std::multiplies<>()));
  std::vector<double> teacher(static_cast<size_t>(settings.classes) * features);
  const Philox random(use.seed, hash_text("random_classification.teacher"));
  for (size_t i = 0; i < teacher.size(); ++i) teacher[i] = random.normal(i);

  DataSplits splits;
  splits.train = make_random_split(settings, use.seed, "random_classification.train",
                                   settings.train_size > 0 ? settings.train_size : kTrainSize, teacher);
  splits.test = make_random_split(settings, use.seed, "random_classification.test",
                                  settings.test_size > 0 ? settings.test_size : kTestSize, teacher);
  splits.description = fmt::format("random classification: {} training and {} test samples of {}, {} classes", splits.train->size(),
                                   splits.test->size(), fmt::join(settings.shape, " x "), settings.classes);
  return splits;
}

DataSplits make_copy_task(const DataSettings& settings, const DataUse& use) {
  const auto make = [&](std::string_view split, int64_t samples) {
    return std::make_unique<CopyTaskDataset>(settings, use.seed, split, samples);
  };
  DataSplits splits;
  splits.train = make("copy_task.train", settings.train_size > 0 ? settings.train_size : kTrainSize);
  splits.test = make("copy_task.test", settings.test_size > 0 ? settings.test_size : kTestSize);
  splits.description = fmt::format("copy task: {} training and {} test sequences of {} of {} symbols", splits.train->size(),
                                   splits.test->size(), settings.context, settings.classes);
  return splits;
}

}  // namespace ulpscope
