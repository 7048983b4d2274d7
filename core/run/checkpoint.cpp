#include "ulpscope/core/run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/context.h"

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

ElementType element_type(const Tensor& tensor) { return tensor.dtype() == DType::f64 ? ElementType::f64 : ElementType::f32; }

std::vector<uint64_t> extents(const Tensor& tensor) { return {tensor.shape().begin(), tensor.shape().end()}; }

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
bool is_stored_as_is(const Tensor& tensor) { return tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64; }

void write_values(const Tensor& tensor, std::span<const float> values) {
  const Tensor rounded = from_host(*context().backend, tensor.dtype(), tensor.shape(), values);
  std::copy_n(stored_bytes(rounded).begin(), stored_bytes(rounded).size(), writable_bytes(tensor).begin());
}

std::vector<float> widened(const Tensor& tensor) {
  const std::vector<double> values = to_host(tensor);
  return {values.begin(), values.end()};
}

void write(hdf5::File& file, const CheckpointInfo& info, const TrainingState& training) {
  file.set_attribute("/", kVersionAttribute, kCheckpointVersion);
  file.set_attribute("/", "run_id", info.run_id);
  file.set_attribute("/", "seed", info.seed);
  file.set_attribute("/", "step", info.step);
  file.set_attribute("/", "samples", static_cast<uint64_t>(info.data.samples));
  file.set_attribute("/", "data_hash", fmt::format("{:016x}", info.data.hash));
  file.set_attribute("/", "epoch", static_cast<uint64_t>(training.loader.position().epoch));
  file.set_attribute("/", "batch", static_cast<uint64_t>(training.loader.position().batch));
  if (training.scaler) {
    const LossScaleState& state = training.scaler->state();
    file.create_group(kScaler);
    file.set_attribute(kScaler, "scale", state.scale);
    file.set_attribute(kScaler, "growth_tracker", static_cast<uint64_t>(state.growth_tracker));
    file.set_attribute(kScaler, "hysteresis_left", static_cast<uint64_t>(state.hysteresis_left));
  }
  file.create_array(kExperiment, ElementType::u8, {info.experiment.size()}).write_all(info.experiment.data());
  for (const char* group : {kParameters, kBuffers, kOptimizer}) file.create_group(group);
  for (const std::string& name : state_names(training)) file.create_group(state_group(name));
  for_each_tensor(training, [&](const std::string& member, const Tensor& tensor) {
    assert(tensor.is_contiguous());
    auto array = file.create_array(member, element_type(tensor), extents(tensor));
    if (is_stored_as_is(tensor)) {
      array.write_all(stored_bytes(tensor).data());
    } else {
      array.write_all(widened(tensor).data());
    }
  });
  for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState& state, const auto&) {
    file.set_attribute(member_path(kParameters, *parameter.name), kUpdates, static_cast<uint64_t>(state.updates));
  });
}

// A checkpoint that is open for reading.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path) : path_(path) {
    if (const auto truncation = hdf5::check_signature(path, "checkpoint"))
      throw unreadable_error("'{}' is truncated: it has {} of {} bytes", path, truncation->bytes, truncation->expected);
    file_ = hdf5::File::open(path, path);
    const auto version = file_.signed_attribute("/", kVersionAttribute);
    if (!version) throw unreadable_error("'{}' is not a checkpoint: an HDF5 file of other contents", path);
    if (*version != kCheckpointVersion)
      throw unreadable_error("'{}' has checkpoint version {}; this ulpscope reads version {}", path, *version, kCheckpointVersion);
  }

  CheckpointInfo info() const {
    return {text("run_id"),
            experiment(),
            static_cast<uint64_t>(number("/", "seed", 0, std::numeric_limits<int64_t>::max())),
            static_cast<uint64_t>(count("/", "step")),
            {count("/", "samples", 1), hash("data_hash")}};
  }

  // A group has the tensors that this model has, no more and no fewer.
  void check_names(const std::string& group, const std::vector<NamedTensor>& tensors) const {
    std::set<std::string> expected;
    for (const NamedTensor& named : tensors) expected.insert(member_path(group, *named.name));
    for (const std::string& link : file_.members(group)) {
      const std::string member = fmt::format("{}/{}", group, link);
      if (expected.erase(member) == 0)
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
    const hdf5::Dataset array = file_.open_dataset(member, element_type(tensor));
    const std::vector<uint64_t> shape = array.shape();
    if (shape != extents(tensor)) {
      throw usage_error("'{}' is of another model: its '{}' is {}, expected {}{}", path_, member,
                        describe_shape(std::vector<int64_t>(shape.begin(), shape.end())), describe_shape(tensor.shape()),
                        hint_of(member));
    }
    assert(tensor.is_contiguous());
    if (is_stored_as_is(tensor)) return array.read_all(writable_bytes(tensor).data());
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    array.read_all(values.data());
    write_values(tensor, values);
  }

  int64_t count(const std::string& object, const char* name, int64_t least = 0) const {
    return number(object, name, least, kMostCounted);
  }
  // One that FP32 holds as a normal number.
  double loss_scale(const std::string& object, const char* name) const {
    const double value = needed(file_.real_attribute(object, name), name);
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
  uint64_t hash(const char* name) const {
    const std::string digits = text(name);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc{} || end != digits.data() + digits.size())
      throw unreadable_error("'{}' is damaged: the attribute '{}' of '/' is '{}', expected a hexadecimal number", path_, name,
                             digits);
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
  std::string text(const char* name) const { return needed(file_.text_attribute("/", name), name); }
  template <typename T>
  T needed(const std::optional<T>& value, const char* attribute) const {
    if (!value) throw unreadable_error("'{}' is damaged: it has no attribute '{}'", path_, attribute);
    return *value;
  }

  std::string path_;
  hdf5::File file_;
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

void save_checkpoint(const std::string& path, const CheckpointInfo& info, const TrainingState& training) {
  context().backend->synchronize();
  Replacement replacement(path);
  hdf5::File file;
  try {
    file = hdf5::File::create(replacement.path(), path);
    write(file, info, training);
    file.flush();
    file.close();
  } catch (const Error& error) {
    file.disconnect();
    throw failed_error("cannot write checkpoint '{}': {}", path, error.what());
  }
  replacement.commit();
}

void check_checkpoint_replaceable(const std::string& path) {
  if (!hdf5::may_be_hdf5(path)) throw other_kind_error(path, "a checkpoint");
}

CheckpointInfo read_checkpoint_info(const std::string& path) {
  return reading(path, [](const CheckpointFile& file) { return file.info(); });
}

CheckpointInfo load_checkpoint(const std::string& path, const TrainingState& training) {
  return reading(path, [&](const CheckpointFile& file) {
    file.check_names(kParameters, training.model.parameters());
    file.check_names(kBuffers, training.model.buffers());
    file.check_optimizers(training);
    for_each_parameter(training, [&](const OptimizedParameter& parameter, OptimizerState& state, const auto& names) {
      state.updates = file.count(member_path(kParameters, *parameter.name), kUpdates);
      const Tensor& like = parameter.tensor;
      state.tensors.resize(state.updates > 0 ? names.size() : 0);
      for (Tensor& tensor : state.tensors) tensor = empty(*context().backend, like.dtype(), like.shape());
    });
    for_each_tensor(training, [&](const std::string& member, const Tensor& tensor) { file.read(member, tensor); });
    for_each_parameter(training, [&](const OptimizedParameter& parameter, const OptimizerState&, const auto&) {
      if (parameter.model) write_values(parameter.model, widened(parameter.tensor));
    });
    if (training.scaler && file.exists(kScaler)) {
      training.scaler->restore(
          {file.loss_scale(kScaler, "scale"), file.count(kScaler, "growth_tracker"), file.count(kScaler, "hysteresis_left", 1)});
    }
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
