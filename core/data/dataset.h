// Where batches come from: data sets in host memory, and the order in which training sees them. The engine copies batches into
// tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

enum class TargetKind : uint8_t { labels, values };
const char* name_of(TargetKind kind);

// Some samples, one after another, row-major. The buffers are reused: a batch of the same size allocates nothing.
struct Batch {
  std::vector<int64_t> input_shape;  // [samples, ...]
  std::vector<float> inputs;
  DType input_type = DType::f32;      // that all of them have, and under the precision that they come of the model's input too
  std::vector<int64_t> indices;       // instead of inputs, where samples are indices
  std::vector<int64_t> target_shape;  // [samples, ...]
  std::vector<int64_t> labels;        // TargetKind::labels, else empty
  std::vector<float> values;          // TargetKind::values, else empty
  std::vector<int64_t> numbers;       // which samples of the data set these are: who asks for them fills it in

  int64_t samples() const { return input_shape.empty() ? 0 : input_shape[0]; }
};

// Samples are shuffled by reading order: blocks of `block` samples lie together, and `window` of them, drawn at random, are
// shuffled with each other. So what is read in blocks is read once in an epoch, and no order is longer than a window.
struct Locality {
  int64_t block = 1, window = 1;
};
// Of samples that cost the same in any order.
inline constexpr int64_t kMostShuffled = int64_t{1} << 20;
inline constexpr Locality kAnywhere{1 << 10, kMostShuffled >> 10};

// Of samples, and of the steps and epochs that they are used in: what is multiplied by what a batch or a step may hold stays in an
// int64_t.
inline constexpr int64_t kMostCounted = int64_t{1} << 40;

// Is told now and then how much of a long piece of work is done, `share` from 0 to 1; what it throws ends the work.
using WorkWatch = std::function<void(std::string_view work, double share)>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;                              // samples, at least 1 and at most kMostCounted
  virtual const std::vector<int64_t>& input_shape() const = 0;   // of one sample: [features], [channels, height, width] or [places]
  virtual const std::vector<int64_t>& target_shape() const = 0;  // of one sample; [] for one label
  virtual int64_t input_indices() const { return 0; }            // not 0: inputs are indices below it
  virtual TargetKind target_kind() const = 0;
  virtual int64_t classes() const = 0;                       // labels lie in [0, classes), or are ignored; 0 for values
  virtual Locality locality() const { return {size(), 1}; }  // all are shuffled with each other
  // Generates what is generated, which may take long and much memory; otherwise the first batch does. `watch` may be empty.
  virtual void prepare(const WorkWatch& /*watch*/) const {}
  // The samples of these blocks, in ascending order, will be asked for soon.
  virtual void prefetch(std::span<const int64_t> /*blocks*/) const {}
  // Where its samples come from, but for `source` and `name`, which are given to data sets by who has several; {}: not known.
  virtual std::vector<SourceInfo> sources() const { return {}; }
  // The number that a sample had in the data that the run was first trained on: of a capsule's samples another one.
  virtual int64_t origin_of(int64_t index) const { return index; }
  // Samples in the order of `indices`, each in [0, size()).
  virtual void fill_batch(std::span<const int64_t> indices, Batch& batch) const = 0;
};

// What tells data apart: how many samples there are, and a hash of the first and last of them as training gets them. What changes
// between those goes unseen.
struct DataIdentity {
  int64_t samples = 0;
  uint64_t hash = 0;

  bool operator==(const DataIdentity&) const = default;
};
DataIdentity identity_of(const Dataset& dataset);

// What the model is to give: the target that the data have, or the input (an autoencoder).
enum class TargetSource : uint8_t { data, input };
const char* name_of(TargetSource source);

enum class DataKind : uint8_t {
  fashion_mnist,
  idx,
  hdf5,
  npy,
  csv,
  text,
  quantized_sine,
  random_classification,
  copy_task,
  capsule
};
const char* name_of(DataKind kind);

// What an experiment says about its data. docs/experiments.md has the meaning of each.
struct DataSettings {
  DataKind kind = DataKind::random_classification;
  // Files: fashion_mnist looks for its four files in `path`; idx takes the four names as they are, the two of the test split may be
  // "".
  std::string path;
  std::string train_images, train_labels, test_images, test_labels;
  std::string test_path;                                   // hdf5, csv; "": none
  std::string inputs, targets, test_inputs, test_targets;  // hdf5: data sets, "": `inputs` and `targets`; npy: files
  TargetKind target_kind = TargetKind::labels;             // hdf5, npy, csv
  int64_t input_indices = 0;                               // hdf5, npy, csv; not 0: inputs are indices below it
  std::vector<std::string> input_columns, target_columns;  // csv: by name or index; {}: all others, the last
  bool header = true;                                      // csv: the first line has the columns' names
  std::string delimiter = ",";                             // csv
  double mean = 0.0, std = 1.0;                            // numbers become (number - mean) / std; pixels are divided by 255 before
  // At most this many samples of each split; 0: all there are (files), 4096 and 1024 (random_classification, copy_task).
  int64_t train_size = 0, test_size = 0;
  int64_t classes = 10;               // of labels; copy_task: symbols
  std::vector<int64_t> shape{128};    // random_classification: of one sample
  int64_t height = 128, width = 128;  // quantized_sine
  int64_t context = 128;              // text: bytes of a sample; copy_task: symbols of a sequence
  int64_t stride = 0;                 // text: bytes between samples; 0: context
  double test_share = 0.1;            // text: of each file, hdf5, npy, csv: of the samples, at the end
  double frequency = 4.0;             // quantized_sine: periods across the image
  int64_t levels = 4;                 // quantized_sine
  TargetSource target = TargetSource::data;
  bool shuffle = true;
  bool drop_last = false;

  bool operator==(const DataSettings&) const = default;
};

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // nullptr where there is none
  std::string description;        // one line: what was opened, and from where
};

// What data depend on besides their settings.
struct DataUse {
  DataUse(uint64_t used_seed, std::optional<int64_t> ignored = {}) : seed(used_seed), ignored_label(ignored) {}

  uint64_t seed;                         // of what is generated
  std::optional<int64_t> ignored_label;  // a label that the loss ignores, and so need not be a class
};

// Opens or generates the data. Throws Error (unreadable) for files that are missing or not what they claim to be.
DataSplits open_data(const DataSettings& settings, const DataUse& use);

// Where a loader stands: the next batch is `batch` of `epoch`.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t batch = 0;

  bool operator==(const LoaderPosition&) const = default;
};

// Yields the batches of epoch after epoch. The order of an epoch is a pure function of (seed, epoch).
class Loader {
 public:
  struct Options {
    int64_t batch_size = 1;
    bool shuffle = true;
    bool drop_last = false;  // leave out the last batch of an epoch where it is smaller than the others
    uint64_t seed = 0;
  };

  // The data set outlives the loader. Throws Error (usage) where drop_last leaves no batch at all.
  Loader(const Dataset& dataset, const Options& options);

  int64_t batches_per_epoch() const;
  const LoaderPosition& position() const { return position_; }
  void seek(const LoaderPosition& position);
  // Fills in the batch at the position, its numbers too, and moves on, after the last batch of an epoch to the next epoch.
  void next(Batch& batch);

 private:
  void order_epoch(int64_t epoch);
  // Orders the window that the `place`-th sample of an epoch is in.
  void order_window(int64_t epoch, int64_t place);
  int64_t first_of_window(int64_t window) const;

  const Dataset& dataset_;
  Options options_;
  Locality locality_;
  LoaderPosition position_;
  int64_t ordered_epoch_ = -1, ordered_window_ = -1;
  std::vector<int64_t> blocks_;  // of the epoch
  int64_t last_block_at_ = 0;    // where among them the last one of the data set is, which may be smaller
  std::vector<int64_t> order_;   // of the window
  std::vector<int64_t> window_blocks_;
  bool prefetched_ = false;  // that window
};

}  // namespace ulpscope
