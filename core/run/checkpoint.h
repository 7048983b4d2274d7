// Training as it stands between two steps, in a file, so that it can go on as if it had never stopped. docs/checkpoint_format.md
// describes the file.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/optim/grad_scaler.h"

namespace ulpscope {

// Readers read this version only. A change of the file's layout raises it.
inline constexpr uint64_t kCheckpointVersion = 3;

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

// Replaces the file at `path`, whole or not at all. Throws Error (failed).
void save_checkpoint(const std::string& path, const CheckpointInfo& info, const TrainingState& training);

// Throws Error (usage) where a file at `path` is no HDF5 file, and so no checkpoint that another may replace.
void check_checkpoint_replaceable(const std::string& path);

// Both throw Error: unreadable where the file is missing, damaged, of another version or no checkpoint.
CheckpointInfo read_checkpoint_info(const std::string& path);
// Puts what was saved in place of the parameters, buffers, optimizer state, loss scale and data position. Where the file or the run
// has no loss scale, the run's stays. Throws Error (usage) where the file does not fit: it names the parameter, what came and what
// was expected. `training` is then half restored.
CheckpointInfo load_checkpoint(const std::string& path, const TrainingState& training);

}  // namespace ulpscope
