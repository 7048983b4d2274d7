// Training as it stands between two steps, in a file, so that it can go on as if it had never stopped; and, of a capsule, which
// steps came then. docs/checkpoint_format.md describes the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/core/data/kept_samples.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/optim/grad_scaler.h"
#include "ulpscope/core/run/capsule.h"

namespace ulpscope {

// Readers read this version only. A change of the file's layout raises it.
inline constexpr uint64_t kCheckpointVersion = 4;

struct CheckpointInfo {
  std::string run_id;      // of the run that wrote it
  std::string experiment;  // its effective TOML text
  uint64_t seed = 0;
  uint64_t step = 0;  // steps done, of the runs before included
  DataIdentity data;  // of the training split
};

// What is saved and restored.
struct TrainingState {
  const Model& model;
  std::span<const std::unique_ptr<Optimizer>> optimizers;
  GradScaler* scaler;  // nullptr: none
  Loader& loader;
};

// The same, as a file gets it.
struct SavedTensor {
  std::string member;  // its path in the file
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // contiguous
};
struct SavedTraining {
  LoaderPosition position;
  std::optional<LossScaleState> scale;
  std::vector<std::string> groups;
  std::vector<SavedTensor> tensors;
  std::vector<std::pair<std::string, int64_t>> updates;  // of each parameter
};

// Training as it stood, in memory of its own.
class TrainingImage {
 public:
  // Copies what there is. A second time, of the same training, it takes no more memory.
  void take(const TrainingState& training, uint64_t step);
  uint64_t step() const { return step_; }
  const SavedTraining& saved() const { return saved_; }

 private:
  uint64_t step_ = 0;
  SavedTraining saved_;
  std::vector<std::byte> memory_;
};

// Both replace the file at `path`, whole or not at all. They throw Error (failed).
// With `samples` the file has them in it, and they are the data that training goes on with; nullptr: these are elsewhere.
void save_checkpoint(const std::string& path, const CheckpointInfo& info, const TrainingState& training,
                     const KeptSamples* samples = nullptr);
// With samples it goes on from the first of them, and the steps have their places among them.
void save_capsule(const std::string& path, const CheckpointInfo& info, const TrainingImage& image, const CapsuleSteps& steps,
                  const KeptSamples* samples = nullptr);

// Throws Error (usage) where a file at `path` is no HDF5 file, and so no checkpoint that another may replace.
void check_checkpoint_replaceable(const std::string& path);

// Whether the file says that it is one, of whatever version and however damaged.
bool is_checkpoint(const std::string& path);

// All that follow throw Error: unreadable where the file is missing, damaged, of another version or no checkpoint.
CheckpointInfo read_checkpoint_info(const std::string& path);
// With which a run computes as that one did, if this machine can; what is asked for comes first.
CpuOptions cpu_as_before(const CapsuleSteps& capsule, CpuOptions asked);
// Throws Error (usage) for a checkpoint that is no capsule.
CapsuleSteps read_capsule_steps(const std::string& path);
// The samples that a checkpoint or capsule has in it. `use`: which labels there may be. Throws Error (usage) where it has none.
KeptSamples read_capsule_samples(const std::string& path, const DataUse& use);
enum class Restored : uint8_t {
  all,
  part,  // the model has part of what the file has, and the data are others: they begin with their first batch
};
// Puts what was saved in place of the parameters, buffers, optimizer state, loss scale and data position. Where the file or the run
// has no loss scale, the run's stays. Throws Error (usage) where the file does not fit: it names the parameter, what came and what
// was expected. `training` is then half restored.
CheckpointInfo load_checkpoint(const std::string& path, const TrainingState& training, Restored restored = Restored::all);

}  // namespace ulpscope
