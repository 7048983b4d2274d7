#include "ulpscope/core/run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/kernels/cpu_in_use.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

namespace {

constexpr const char* kVersionAttribute = "checkpoint_version";
constexpr const char* kExperiment = "experiment";
// One that is read from a file is much smaller, also when it is written with all its defaults.
constexpr uint64_t kMaximumExperimentBytes = 64 << 20;
constexpr const char* kParameters = "parameters";
constexpr const char* kBuffers = "buffers";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kScaler = "scaler";
constexpr const char* kUpdates = "updates";  // an attribute of each parameter
// Of a capsule.
constexpr const char* kSteps = "steps";
constexpr const char* kLoss = "steps/loss";
constexpr const char* kScale = "steps/scale";
constexpr const char* kSkipped = "steps/skipped";
constexpr const char* kBatchHash = "steps/batch_hash";
constexpr const char* kBatchSize = "steps/batch_size";
constexpr const char* kSamples = "steps/samples";
constexpr uint64_t kMostSamples = uint64_t{1} << 28;  // 2 GB of their numbers
// Of one that has its samples in it.
constexpr const char* kData = "data";
constexpr const char* kInputs = "data/inputs";
constexpr const char* kNumbers = "data/numbers";
constexpr const char* kTargets = "data/targets";
constexpr const char* kInputType = "input_type";
constexpr const char* kInputIndices = "input_indices";
constexpr const char* kClasses = "classes";
constexpr size_t kMostDimensions = 8;  // of a tensor

// A name as HDF5 takes it within a group: the bytes that it cannot hold, and the percent sign, as %XX.
std::string link_name(std::string_view name) {
  std::string link;
  for (const char c : name) {
    if (c == '/' || c == '%' || static_cast<unsigned char>(c) < 0x20) {
      link += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      link += c;
    }
  }
  return link;
}

std::string member_path(std::string_view group, std::string_view name) { return fmt::format("{}/{}", group, link_name(name)); }

// Of a tensor's values in the file.
ElementType element_type(DType dtype) { return dtype == DType::f64 ? ElementType::f64 : ElementType::f32; }

std::vector<uint64_t> extents(std::span<const int64_t> shape) { return {shape.begin(), shape.end()}; }

// What the optimizers keep of parameters.
std::set<std::string> state_names(const TrainingState& training) {
  std::set<std::string> names;
  for (const auto& optimizer : training.optimizers) names.insert(optimizer->state_names().begin(), optimizer->state_names().end());
  return names;
}

// One group for each: "optimizer/mean".
std::string state_group(const std::string& name) { return fmt::format("{}/{}", kOptimizer, name); }

// Calls visit(parameter, state, names of the state's tensors) for every parameter: each belongs to one optimizer.
template <typename Visit>
void for_each_parameter(const TrainingState& training, Visit&& visit) {
  for (const auto& optimizer : training.optimizers) {
    const std::vector<OptimizedParameter>& parameters = optimizer->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) visit(parameters[i], optimizer->states()[i], optimizer->state_names());
  }
}

// Calls visit(path in the file, tensor) for every tensor of the state; of a parameter with a master weight that one.
template <typename Visit>
void for_each_tensor(const TrainingState& training, Visit&& visit) {
  for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState&, const auto&) {
    visit(member_path(kParameters, *parameter.name), parameter.tensor);
  });
  for (const NamedTensor& buffer : training.model.buffers()) visit(member_path(kBuffers, *buffer.name), buffer.tensor);
  for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState& state, const auto& names) {
    for (size_t k = 0; k < state.tensors.size(); ++k) visit(member_path(state_group(names[k]), *parameter.name), state.tensors[k]);
  });
}

// Whether the file has the bytes of the tensor; 16-bit values stand there as FP32, so that any precision can go on from them.
bool is_stored_as_is(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

template <typename T>
void write_values(const Tensor& tensor, std::span<const T> values) {
  set_stored_bytes(tensor, HostView(from_host(*context().backend, tensor.dtype(), tensor.shape(), values)).bytes());
}

std::vector<float> widened(const SavedTensor& tensor) {
  TensorView view;
  view.data = const_cast<std::byte*>(tensor.bytes.data());  // which is read only
  view.dtype = tensor.dtype;
  view.rank = static_cast<int>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), view.shape.begin());
  view = contiguous(view);
  std::vector<float> values(static_cast<size_t>(view.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(read_element(view, static_cast<int64_t>(i)));
  return values;
}

// Without the bytes of tensors.
SavedTraining describe(const TrainingState& training) {
  SavedTraining saved;
  saved.position = training.loader.position();
  if (training.scaler) saved.scale = training.scaler->state();
  for (const char* group : {kParameters, kBuffers, kOptimizer}) saved.groups.emplace_back(group);
  for (const std::string& name : state_names(training)) saved.groups.push_back(state_group(name));
  for_each_tensor(training, [&](std::string member, const Tensor& tensor) {
    assert(tensor.is_contiguous());
    saved.tensors.push_back({std::move(member), tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}, {}});
  });
  for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState& state, const auto&) {
    saved.updates.emplace_back(member_path(kParameters, *parameter.name), state.updates);
  });
  return saved;
}

void write(hdf5::File& file, const CheckpointInfo& info, const SavedTraining& saved) {
  file.set_attribute("/", kVersionAttribute, kCheckpointVersion);
  file.set_attribute("/", "run_id", info.run_id);
  file.set_attribute("/", "seed", info.seed);
  file.set_attribute("/", "step", info.step);
  file.set_attribute("/", "samples", static_cast<uint64_t>(info.data.samples));
  file.set_attribute("/", "data_hash", fmt::format("{:016x}", info.data.hash));
  file.set_attribute("/", "epoch", static_cast<uint64_t>(saved.position.epoch));
  file.set_attribute("/", "batch", static_cast<uint64_t>(saved.position.batch));
  if (saved.scale) {
    file.create_group(kScaler);
    file.set_attribute(kScaler, "scale", saved.scale->scale);
    file.set_attribute(kScaler, "growth_tracker", static_cast<uint64_t>(saved.scale->growth_tracker));
    file.set_attribute(kScaler, "hysteresis_left", static_cast<uint64_t>(saved.scale->hysteresis_left));
    file.set_attribute(kScaler, "next_scale", saved.scale->next_scale);
  }
  file.create_array(kExperiment, ElementType::u8, {info.experiment.size()}).write_all(info.experiment.data());
  for (const std::string& group : saved.groups) file.create_group(group);
  for (const SavedTensor& tensor : saved.tensors) {
    auto array = file.create_array(tensor.member, element_type(tensor.dtype), extents(tensor.shape));
    if (is_stored_as_is(tensor.dtype)) {
      array.write_all(tensor.bytes.data());
    } else {
      array.write_all(widened(tensor).data());
    }
  }
  for (const auto& [parameter, updates] : saved.updates) file.set_attribute(parameter, kUpdates, static_cast<uint64_t>(updates));
}

void write(hdf5::File& file, const CapsuleSteps& capsule) {
  std::vector<double> losses, scales;
  std::vector<uint8_t> skipped;
  std::vector<uint64_t> hashes;
  std::vector<int64_t> sizes, samples;
  for (const CapsuleStep& step : capsule.steps) {
    losses.push_back(step.loss);
    scales.push_back(step.scale);
    skipped.push_back(step.skipped);
    for (const CapsuleBatch& batch : step.batches) {
      hashes.push_back(batch.hash);
      sizes.push_back(static_cast<int64_t>(batch.samples.size()));
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
  }
  file.create_group(kSteps);
  file.set_attribute(kSteps, "event", capsule.event);
  file.set_attribute(kSteps, "weights_fingerprint", fmt::format("{:016x}", capsule.weights_fingerprint));
  file.set_attribute(kSteps, "machine", capsule.machine);
  file.set_attribute(kSteps, "threads", static_cast<uint64_t>(capsule.cpu_in_use.threads));
  file.set_attribute(kSteps, "isa", capsule.cpu_in_use.isa);
  file.set_attribute(kSteps, "isa_asked", capsule.cpu.isa);
  const auto write_all = [&](const char* name, ElementType type, const auto& values) {
    file.create_array(name, type, {values.size()}).write_all(values.data());
  };
  write_all(kLoss, ElementType::f64, losses);
  write_all(kScale, ElementType::f64, scales);
  write_all(kSkipped, ElementType::u8, skipped);
  write_all(kBatchHash, ElementType::u64, hashes);
  write_all(kBatchSize, ElementType::i64, sizes);
  write_all(kSamples, ElementType::i64, samples);
}

void write(hdf5::File& file, const KeptSamples& samples) {
  const Batch& batch = samples.batch;
  file.create_group(kData);
  file.set_attribute(kData, kInputType, std::string(info(batch.input_type).name));
  file.set_attribute(kData, kInputIndices, static_cast<uint64_t>(samples.input_indices));
  file.set_attribute(kData, kClasses, static_cast<uint64_t>(samples.classes));
  const auto write_all = [&](const char* name, ElementType type, const std::vector<int64_t>& shape, const void* values) {
    file.create_array(name, type, extents(shape)).write_all(values);
  };
  write_all(kNumbers, ElementType::i64, {batch.samples()}, samples.origins.data());
  if (samples.input_indices > 0) {
    write_all(kInputs, ElementType::i64, batch.input_shape, batch.indices.data());
  } else {
    write_all(kInputs, ElementType::f32, batch.input_shape, batch.inputs.data());
  }
  if (samples.target_kind == TargetKind::labels) {
    write_all(kTargets, ElementType::i64, batch.target_shape, batch.labels.data());
  } else {
    write_all(kTargets, ElementType::f32, batch.target_shape, batch.values.data());
  }
}

// Replaces the file by one that `fill` writes; `what` it is, as in "checkpoint".
template <typename Fill>
void replace_file(const std::string& path, std::string_view what, Fill&& fill) {
  Replacement replacement(path);
  hdf5::File file;
  try {
    file = hdf5::File::create(replacement.path(), path);
    fill(file);
    file.flush();
    file.close();
  } catch (const Error& error) {
    file.disconnect();
    throw failed_error("cannot write {} '{}': {}", what, path, error.what());
  }
  replacement.commit();
}

// A checkpoint that is open for reading.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path) : path_(path) {
    if (const auto truncation = hdf5::check_signature(path, "checkpoint"))
      throw unreadable_error("'{}' is truncated: it has {} of {} bytes", path, truncation->bytes, truncation->expected);
    file_ = hdf5::File::open(path, path);
    std::error_code error;
    bytes_ = std::filesystem::file_size(path, error);
    if (error) bytes_ = 0;
    const auto version = file_.signed_attribute("/", kVersionAttribute);
    if (!version) throw unreadable_error("'{}' is not a checkpoint: an HDF5 file of other contents", path);
    if (*version != kCheckpointVersion)
      throw unreadable_error("'{}' has checkpoint version {}; this ulpscope reads version {}", path, *version, kCheckpointVersion);
  }

  CheckpointInfo info() const {
    return {text("/", "run_id"),
            experiment(),
            static_cast<uint64_t>(number("/", "seed", 0, std::numeric_limits<int64_t>::max())),
            static_cast<uint64_t>(count("/", "step")),
            {count("/", "samples", 1), hash("/", "data_hash")}};
  }

  CapsuleSteps steps() const {
    if (!file_.exists(kSteps))
      throw usage_error(
          "'{}' is a checkpoint without steps to run again, as a capsule has them; `ulpscope train --resume` goes on "
          "from it",
          path_);
    CapsuleSteps capsule{text(kSteps, "event"),
                         {},
                         hash(kSteps, "weights_fingerprint"),
                         text(kSteps, "machine"),
                         {0, text(kSteps, "isa_asked")},
                         {static_cast<int>(number(kSteps, "threads", 1, kMostThreads)), text(kSteps, "isa")}};
    const auto losses = column<double>(kLoss, ElementType::f64, 2 * kMostKeptSteps);
    const auto scales = column<double>(kScale, ElementType::f64, 2 * kMostKeptSteps);
    const auto skipped = column<uint8_t>(kSkipped, ElementType::u8, 2 * kMostKeptSteps);
    const auto sizes = column<int64_t>(kBatchSize, ElementType::i64, kMostSamples);
    const auto hashes = column<uint64_t>(kBatchHash, ElementType::u64, kMostSamples);
    const auto samples = column<int64_t>(kSamples, ElementType::i64, kMostSamples);
    if (scales.size() != losses.size() || skipped.size() != losses.size() || hashes.size() != sizes.size() ||
        sizes.size() % losses.size() != 0) {
      throw unreadable_error(
          "'{}' is damaged: it has {} losses, {} scales, {} marks of skipped steps, {} sizes and {} hashes of batches", path_,
          losses.size(), scales.size(), skipped.size(), sizes.size(), hashes.size());
    }
    const size_t per_step = sizes.size() / losses.size();
    size_t first = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
      CapsuleStep& step = capsule.steps.emplace_back();
      step.loss = losses[i];
      step.scale = scales[i];
      step.skipped = skipped[i] != 0;
      for (size_t k = i * per_step; k < (i + 1) * per_step; ++k) {
        if (sizes[k] < 1 || static_cast<uint64_t>(sizes[k]) > samples.size() - first)
          throw unreadable_error("'{}' is damaged: batch {} has {} samples, of {} in all", path_, k, sizes[k], samples.size());
        const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(first), end = begin + sizes[k];
        step.batches.push_back({{begin, end}, hashes[k]});
        first += static_cast<size_t>(sizes[k]);
      }
    }
    if (first != samples.size())
      throw unreadable_error("'{}' is damaged: its batches have {} samples, of {} in all", path_, first, samples.size());
    return capsule;
  }

  KeptSamples samples(const DataUse& use) const {
    if (!file_.exists(kData))
      throw usage_error("'{}' has no samples in it, which are the data of its experiment (data.kind = \"capsule\")", path_);
    KeptSamples kept;
    Batch& batch = kept.batch;
    kept.input_indices = number(kData, kInputIndices, 0, int64_t{1} << 31);
    kept.classes = number(kData, kClasses, 0, 1 << 16);
    kept.target_kind = kept.classes > 0 ? TargetKind::labels : TargetKind::values;
    const std::string type = text(kData, kInputType);
    const DType types[] = {DType::f32, DType::f16, DType::bf16};
    const auto found =
        std::find_if(std::begin(types), std::end(types), [&](DType each) { return ulpscope::info(each).name == type; });
    if (found == std::end(types))
      throw unreadable_error("'{}' is damaged: its samples are '{}', expected f32, f16 or bf16", path_, one_line(type));
    batch.input_type = *found;
    if (kept.input_indices > 0) {
      batch.indices = array<int64_t>(kInputs, ElementType::i64, batch.input_shape);
      check_range(kInputs, batch.indices, kept.input_indices, {});
    } else {
      batch.inputs = array<float>(kInputs, ElementType::f32, batch.input_shape);
    }
    if (kept.target_kind == TargetKind::labels) {
      batch.labels = array<int64_t>(kTargets, ElementType::i64, batch.target_shape);
      check_range(kTargets, batch.labels, kept.classes, use.ignored_label);
    } else {
      batch.values = array<float>(kTargets, ElementType::f32, batch.target_shape);
    }
    if (batch.input_shape[0] != batch.target_shape[0] || batch.input_shape.size() < 2)
      throw unreadable_error("'{}' is damaged: its samples are {}, and their targets {}", path_, describe_shape(batch.input_shape),
                             describe_shape(batch.target_shape));
    if (!file_.exists(kNumbers))
      throw unreadable_error("'{}' does not tell where its samples come from ('{}'): an older ulpscope wrote it", path_, kNumbers);
    std::vector<int64_t> numbers;
    kept.origins = array<int64_t>(kNumbers, ElementType::i64, numbers);
    if (numbers != std::vector{batch.input_shape[0]})
      throw unreadable_error("'{}' is damaged: it has {} samples, and numbers of them are {}", path_, batch.input_shape[0],
                             describe_shape(numbers));
    check_range(kNumbers, kept.origins, kMostCounted, {});
    return kept;
  }

  // A group has the tensors that this model has, no fewer, and of all of a model no more.
  void check_names(const std::string& group, const std::vector<NamedTensor>& tensors, Restored restored) const {
    std::set<std::string> expected;
    for (const NamedTensor& named : tensors) expected.insert(member_path(group, *named.name));
    for (const std::string& link : file_.members(group)) {
      const std::string member = fmt::format("{}/{}", group, link);
      if (expected.erase(member) == 0 && restored == Restored::all)
        throw usage_error("'{}' is of another model: it has '{}', which this one lacks{}", path_, member, hint_of(member));
    }
    if (!expected.empty())
      throw usage_error("'{}' is of another model: it has no '{}'{}", path_, *expected.begin(), hint_of(*expected.begin()));
  }

  // Of every parameter that was updated the file has what this optimizer keeps, no more and no less.
  void check_optimizers(const TrainingState& training) const {
    std::map<std::string, std::set<std::string>> found;  // by the parameter's link
    for (const std::string& name : file_.members(kOptimizer)) {
      for (const std::string& link : file_.members(state_group(name))) found[link].insert(name);
    }
    const auto kept = [](const std::set<std::string>& names) {
      return names.empty() ? "nothing" : join_words(std::vector<std::string>(names.begin(), names.end()));
    };
    for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState&, const auto& names) {
      if (count(member_path(kParameters, *parameter.name), kUpdates) == 0) return;
      const std::set<std::string> expected(names.begin(), names.end()), &in_file = found[link_name(*parameter.name)];
      if (in_file == expected) return;
      throw usage_error("'{}' is of another optimizer: it keeps {} of '{}', this one {}", path_, kept(in_file), *parameter.name,
                        kept(expected));
    });
  }

  void read(const std::string& member, const Tensor& tensor) const {
    // FP32 is widened to FP64, and rounded from it: any precision goes on from any.
    const bool is_double = file_.holds(member, ElementType::f64);
    const hdf5::Dataset array = file_.open_dataset(member, is_double ? ElementType::f64 : ElementType::f32);
    const std::vector<uint64_t> shape = array.shape();
    if (shape != extents(tensor.shape())) {
      throw usage_error("'{}' is of another model: its '{}' is {}, expected {}{}", path_, member,
                        describe_shape(std::vector<int64_t>(shape.begin(), shape.end())), describe_shape(tensor.shape()),
                        hint_of(member));
    }
    assert(tensor.is_contiguous());
    const auto convert = [&]<typename T>(std::vector<T> values) {
      array.read_all(values.data());
      write_values<T>(tensor, values);
    };
    const auto size = static_cast<size_t>(tensor.size());
    is_double ? convert(std::vector<double>(size)) : convert(std::vector<float>(size));
  }

  int64_t count(const std::string& object, const char* name, int64_t least = 0) const {
    return number(object, name, least, kMostCounted);
  }
  // One that FP32 holds as a normal number.
  // `otherwise`: where there is no such attribute.
  double loss_scale(const std::string& object, const char* name, std::optional<double> otherwise = {}) const {
    const std::optional<double> found = file_.real_attribute(object, name);
    const double value = found || !otherwise ? needed(found, name) : *otherwise;
    constexpr double kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
    if (!(value >= kLeast && value <= kMost)) throw wrong_value(object, name, value, kLeast, kMost);
    return value;
  }
  bool exists(const std::string& object) const { return file_.exists(object); }

 private:
  // The state of delayed scaling follows from more than the layers. Its histories come first among a layer's buffers.
  static std::string_view hint_of(std::string_view member) {
    return member.ends_with("_amax_history")
               ? " (delayed scaling of FP8: expected the same precision, fp8.recipe and fp8.amax_history)"
               : "";
  }
  int64_t number(const std::string& object, const char* name, int64_t least, int64_t most) const {
    const int64_t value = needed(file_.signed_attribute(object, name), name);
    if (value < least || value > most) throw wrong_value(object, name, value, least, most);
    return value;
  }
  template <typename T>
  Error wrong_value(const std::string& object, const char* name, T value, T least, T most) const {
    return unreadable_error("'{}' is damaged: the attribute '{}' of '{}' is {}, expected {} to {}", path_, name, object, value,
                            least, most);
  }
  uint64_t hash(const char* object, const char* name) const {
    const std::string digits = text(object, name);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc{} || end != digits.data() + digits.size())
      throw unreadable_error("'{}' is damaged: the attribute '{}' of '{}' is '{}', expected a hexadecimal number", path_, name,
                             object, digits);
    return value;
  }
  std::string experiment() const {
    const hdf5::Dataset stored = file_.open_dataset(kExperiment, ElementType::u8);
    const std::vector<uint64_t> shape = stored.shape();
    if (shape.size() != 1 || shape[0] > kMaximumExperimentBytes)
      throw unreadable_error("'{}' is damaged: '{}' is {}, expected a text of at most {} bytes", path_, kExperiment,
                             describe_shape(std::vector<int64_t>(shape.begin(), shape.end())), kMaximumExperimentBytes);
    std::string text(shape[0], '\0');
    stored.read_all(text.data());
    return text;
  }
  std::string text(const char* object, const char* name) const { return needed(file_.text_attribute(object, name), name); }
  // The elements of an array, which lies uncompressed in the file: one that is larger than the file was not written so.
  template <typename T>
  std::vector<T> array(const char* name, ElementType type, std::vector<int64_t>& shape, size_t most_dimensions = kMostDimensions,
                       uint64_t most = std::numeric_limits<uint64_t>::max()) const {
    const hdf5::Dataset stored = file_.open_dataset(name, type);
    const std::vector<uint64_t> extents = stored.shape();
    shape.assign(extents.begin(), extents.end());
    uint64_t left = std::min<uint64_t>(most, bytes_ / sizeof(T)), count = 1;
    for (const uint64_t extent : extents) {
      left = extent > 0 ? left / extent : 0;
      count *= left > 0 ? extent : 1;
    }
    if (left == 0 || extents.empty() || extents.size() > most_dimensions)
      throw unreadable_error("'{}' is damaged: '{}' is {}, more than it can be", path_, name, describe_shape(shape));
    std::vector<T> values(count);
    stored.read_all(values.data());
    return values;
  }
  template <typename T>
  std::vector<T> column(const char* name, ElementType type, uint64_t most) const {
    std::vector<int64_t> shape;
    return array<T>(name, type, shape, 1, most);
  }
  void check_range(const char* name, const std::vector<int64_t>& values, int64_t end, std::optional<int64_t> besides) const {
    for (const int64_t value : values)
      if ((value < 0 || value >= end) && value != besides)
        throw unreadable_error("'{}' is damaged: '{}' has {}, expected 0 to {}", path_, name, value, end - 1);
  }
  template <typename T>
  T needed(const std::optional<T>& value, const char* attribute) const {
    if (!value) throw unreadable_error("'{}' is damaged: it has no attribute '{}'", path_, attribute);
    return *value;
  }

  std::string path_;
  hdf5::File file_;
  uint64_t bytes_ = 0;
};

// What body returns for the checkpoint at `path`, with the errors of HDF5 turned into errors about it.
template <typename Body>
auto reading(const std::string& path, Body&& body) {
  try {
    return body(CheckpointFile(path));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::failed) throw;
    throw unreadable_error("'{}': {}", path, error.what());
  }
}

}  // namespace

void TrainingImage::take(const TrainingState& training, uint64_t step) {
  constexpr size_t kAlignment = 64;
  const auto aligned = [](size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  step_ = step;
  saved_ = describe(training);
  const auto bytes_of = [](const SavedTensor& tensor) {
    return std::accumulate(tensor.shape.begin(), tensor.shape.end(), info(tensor.dtype).size, std::multiplies<size_t>());
  };
  size_t bytes = 0;
  for (const SavedTensor& tensor : saved_.tensors) bytes += aligned(bytes_of(tensor));
  memory_.resize(bytes);
  std::byte* to = memory_.data();
  for_each_tensor(training, [&, saved = saved_.tensors.begin()](const std::string&, const Tensor& tensor) mutable {
    const size_t size = bytes_of(*saved);
    context().backend->copy_to_host(tensor.view().data, to, size);
    (saved++)->bytes = {to, size};
    to += aligned(size);
  });
}

void save_checkpoint(const std::string& path, const CheckpointInfo& info, const TrainingState& training,
                     const KeptSamples* samples) {
  SavedTraining saved = describe(training);
  std::deque<HostView> views;
  for_each_tensor(training, [&, next = saved.tensors.begin()](const std::string&, const Tensor& tensor) mutable {
    (next++)->bytes = views.emplace_back(tensor).bytes();
  });
  replace_file(path, "checkpoint", [&](hdf5::File& file) {
    write(file, info, saved);
    if (samples != nullptr) write(file, *samples);
  });
}

void save_capsule(const std::string& path, const CheckpointInfo& info, const TrainingImage& image, const CapsuleSteps& steps,
                  const KeptSamples* samples) {
  replace_file(path, "capsule", [&](hdf5::File& file) {
    SavedTraining saved = image.saved();
    if (samples != nullptr) saved.position = {};
    write(file, info, saved);
    write(file, steps);
    if (samples != nullptr) write(file, *samples);
  });
}

void check_checkpoint_replaceable(const std::string& path) {
  if (!hdf5::may_be_hdf5(path)) throw other_kind_error(path, "a checkpoint");
}

bool is_checkpoint(const std::string& path) {
  try {
    if (hdf5::check_signature(path, "checkpoint")) return false;
    return hdf5::File::open(path, path).signed_attribute("/", kVersionAttribute).has_value();
  } catch (const Error&) {
    return false;
  }
}

CheckpointInfo read_checkpoint_info(const std::string& path) {
  return reading(path, [](const CheckpointFile& file) { return file.info(); });
}

CpuOptions cpu_as_before(const CapsuleSteps& capsule, CpuOptions asked) {
  if (asked.threads == 0) asked.threads = capsule.cpu_in_use.threads;
  if (!asked.isa.empty()) return asked;
  asked.isa = capsule.cpu.isa;
  // One that nobody asked for is asked for where this machine would take another. oneDNN, which has more of them, is then held to
  // it.
  if (asked.isa.empty() && capsule.cpu_in_use.isa != cpu_options_in_use().isa) asked.isa = capsule.cpu_in_use.isa;
  return asked;
}

CapsuleSteps read_capsule_steps(const std::string& path) {
  return reading(path, [](const CheckpointFile& file) { return file.steps(); });
}

KeptSamples read_capsule_samples(const std::string& path, const DataUse& use) {
  return reading(path, [&](const CheckpointFile& file) { return file.samples(use); });
}

CheckpointInfo load_checkpoint(const std::string& path, const TrainingState& training, Restored restored) {
  return reading(path, [&](const CheckpointFile& file) {
    file.check_names(kParameters, training.model.parameters(), restored);
    file.check_names(kBuffers, training.model.buffers(), restored);
    file.check_optimizers(training);
    for_each_parameter(training, [&](const OptimizedParameter& parameter, OptimizerState& state, const auto& names) {
      state.updates = file.count(member_path(kParameters, *parameter.name), kUpdates);
      const Tensor& like = parameter.tensor;
      state.tensors.resize(state.updates > 0 ? names.size() : 0);
      for (Tensor& tensor : state.tensors) tensor = empty(*context().backend, like.dtype(), like.shape());
    });
    for_each_tensor(training, [&](const std::string& member, const Tensor& tensor) { file.read(member, tensor); });
    for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState&, const auto&) {
      if (parameter.model) write_values<double>(parameter.model, to_host(parameter.tensor));
    });
    if (training.scaler && file.exists(kScaler)) {
      const double scale = file.loss_scale(kScaler, "scale");
      training.scaler->restore({scale, file.count(kScaler, "growth_tracker"), file.count(kScaler, "hysteresis_left", 1),
                                file.loss_scale(kScaler, "next_scale", scale)});
    }
    if (restored == Restored::part) return file.info();
    const LoaderPosition position{file.count("/", "epoch"), file.count("/", "batch")};
    const int64_t batches = training.loader.batches_per_epoch();
    if (position.batch >= batches) {
      throw usage_error(
          "'{}' is of other data or another training.batch_size: it goes on at batch {} of an epoch, expected less than {}", path,
          position.batch, batches);
    }
    training.loader.seek(position);
    return file.info();
  });
}

}  // namespace ulpscope
