// Data sets that are computed: a quantized sine over the unit square, classes that a random linear teacher tells apart, and
// sequences to copy.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

constexpr int64_t kTrainSize = 4096;
constexpr int64_t kTestSize = 1024;

// Tells a watch, now and then, how many numbers have been generated; of a few it tells nothing.
class Generation {
 public:
  Generation(const WorkWatch& watch, double numbers, double steps) : watch_(numbers >= kMany ? watch : WorkWatch()), steps_(steps) {
    if (!watch_) return;
    work_ = fmt::format("generating {:.0f} numbers", numbers);
    watch_(work_, 0);
  }
  // `count` of the steps have been done since the last call.
  void add(size_t count) {
    done_ += static_cast<double>(count);
    if (!watch_ || done_ < next_) return;
    next_ = done_ + kBetween;
    watch_(work_, std::min(1.0, done_ / steps_));
  }

 private:
  static constexpr double kMany = 1 << 26, kBetween = 1 << 20;  // seconds, and tens of milliseconds

  WorkWatch watch_;
  std::string work_;
  double steps_, done_ = 0, next_ = 0;
};

std::vector<SourceInfo> generated_by(const char* generator, int64_t samples) {
  SourceInfo source = source_in("", generator);
  source.samples = static_cast<uint64_t>(samples);
  return {std::move(source)};
}

// Samples one after another; labels or values.
struct Table {
  std::vector<float> inputs, values;
  std::vector<int64_t> labels;
};

// A table that is generated when it is needed: its shapes are known before.
class TableDataset : public Dataset {
 public:
  TableDataset(DataKind generator, int64_t samples, std::vector<int64_t> input, std::vector<int64_t> target, int64_t classes,
               std::function<Table(const WorkWatch&)> generate)
      : generator_(generator),
        samples_(samples),
        input_(std::move(input)),
        target_(std::move(target)),
        classes_(classes),
        generate_(std::move(generate)) {}

  int64_t size() const override { return samples_; }
  const std::vector<int64_t>& input_shape() const override { return input_; }
  const std::vector<int64_t>& target_shape() const override { return target_; }
  TargetKind target_kind() const override { return classes_ > 0 ? TargetKind::labels : TargetKind::values; }
  int64_t classes() const override { return classes_; }
  std::vector<SourceInfo> sources() const override { return generated_by(name_of(generator_), samples_); }
  void prepare(const WorkWatch& watch) const override {
    if (!table_) table_ = generate_(watch);
  }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    prepare({});
    set_shape(indices, input_, batch.input_shape);
    set_shape(indices, target_, batch.target_shape);
    gather(indices, table_->inputs, batch.inputs);
    gather(indices, table_->values, batch.values);
    gather(indices, table_->labels, batch.labels);
  }

 private:
  static void set_shape(std::span<const int64_t> indices, const std::vector<int64_t>& sample, std::vector<int64_t>& shape) {
    shape.assign(1, static_cast<int64_t>(indices.size()));
    shape.insert(shape.end(), sample.begin(), sample.end());
  }

  template <typename T>
  void gather(std::span<const int64_t> indices, const std::vector<T>& from, std::vector<T>& to) const {
    const size_t each = from.size() / static_cast<size_t>(samples_);
    to.resize(indices.size() * each);
    for (size_t i = 0; i < indices.size(); ++i) {
      const T* sample = from.data() + static_cast<size_t>(indices[i]) * each;
      std::copy(sample, sample + each, to.data() + i * each);
    }
  }

  DataKind generator_;
  int64_t samples_;
  std::vector<int64_t> input_, target_;
  int64_t classes_;
  std::function<Table(const WorkWatch&)> generate_;
  mutable std::optional<Table> table_;
};

Table generate_random_split(const DataSettings& settings, uint64_t seed, std::string_view split, int64_t samples,
                            const WorkWatch& watch) {
  const auto features =
      static_cast<size_t>(std::accumulate(settings.shape.begin(), settings.shape.end(), int64_t{1}, std::multiplies<>()));
  const size_t weights = static_cast<size_t>(settings.classes) * features, numbers = static_cast<size_t>(samples) * features;
  // A label takes a product with each class's weights.
  Generation generation(watch, static_cast<double>(weights) + static_cast<double>(numbers),
                        static_cast<double>(weights) + static_cast<double>(numbers) * static_cast<double>(1 + settings.classes));
  std::vector<double> teacher(weights);
  const Philox weights_of_teacher(seed, hash_text("random_classification.teacher"));
  for (size_t i = 0; i < teacher.size(); ++i) {
    teacher[i] = weights_of_teacher.normal(i);
    generation.add(1);
  }

  Table table;
  table.inputs.reserve(numbers);
  table.labels.resize(static_cast<size_t>(samples));
  const Philox random(seed, hash_text(split));
  for (size_t i = 0; i < numbers; ++i) {
    table.inputs.push_back(static_cast<float>(random.normal(i)));
    generation.add(1);
  }
  for (size_t sample = 0; sample < table.labels.size(); ++sample) {
    const float* x = table.inputs.data() + sample * features;
    double best = -std::numeric_limits<double>::infinity();
    for (size_t label = 0; label < static_cast<size_t>(settings.classes); ++label) {
      const double* of_label = teacher.data() + label * features;
      double score = 0;
      for (size_t k = 0; k < features; ++k) score += of_label[k] * x[k];
      generation.add(features);
      if (score > best) {
        best = score;
        table.labels[sample] = static_cast<int64_t>(label);
      }
    }
  }
  return table;
}

Table generate_quantized_sine(const DataSettings& settings, const WorkWatch& watch) {
  const int64_t height = settings.height, width = settings.width;
  const auto pixels = static_cast<size_t>(height * width);
  Generation generation(watch, 3 * static_cast<double>(pixels), static_cast<double>(pixels));
  Table table;
  table.inputs.resize(2 * pixels);
  table.values.resize(pixels);
  const auto coordinate = [](int64_t i, int64_t n) { return n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.0; };
  const double turns = 2 * std::numbers::pi * settings.frequency;
  const auto levels = static_cast<double>(settings.levels);
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      const double x = coordinate(column, width), y = coordinate(row, height);
      const auto pixel = static_cast<size_t>(row * width + column);
      table.inputs[pixel] = static_cast<float>(x);
      table.inputs[pixels + pixel] = static_cast<float>(y);
      const double share = (std::sin(turns * x) * std::sin(turns * y) + 1) / 2;  // in [0, 1]
      table.values[pixel] = static_cast<float>(std::min(std::floor(share * levels), levels - 1) / (levels - 1));
      generation.add(1);
    }
  }
  return table;
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
  std::vector<SourceInfo> sources() const override { return generated_by(name_of(DataKind::copy_task), samples_); }

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
  const int64_t height = settings.height, width = settings.width;
  DataSplits splits;
  splits.train = std::make_unique<TableDataset>(
      DataKind::quantized_sine, 1, std::vector<int64_t>{2, height, width}, std::vector<int64_t>{1, height, width}, 0,
      [settings](const WorkWatch& watch) { return generate_quantized_sine(settings, watch); });
  splits.description =
      fmt::format("quantized sine: {} x {}, frequency {}, {} levels", height, width, settings.frequency, settings.levels);
  return splits;
}

DataSplits make_random_classification(const DataSettings& settings, const DataUse& use) {
  const auto make = [&](std::string_view split, int64_t samples) {
    return std::make_unique<TableDataset>(DataKind::random_classification, samples, settings.shape, std::vector<int64_t>{},
                                          settings.classes, [settings, seed = use.seed, split, samples](const WorkWatch& watch) {
                                            return generate_random_split(settings, seed, split, samples, watch);
                                          });
  };
  DataSplits splits;
  splits.train = make("random_classification.train", settings.train_size > 0 ? settings.train_size : kTrainSize);
  splits.test = make("random_classification.test", settings.test_size > 0 ? settings.test_size : kTestSize);
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
