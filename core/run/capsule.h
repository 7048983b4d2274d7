// Capsules: some steps of a run in a checkpoint, so that they can be run again. docs/checkpoint_format.md describes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// What a run keeps a capsule of, the first time it happens.
enum class CapsuleEvent : uint8_t {
  nan,       // a loss or weight that is not finite
  overflow,  // an infinity that an op made, in a step that was not skipped
  backoff,   // the loss scale went down
  step,      // a step of that number
};
const char* name_of(CapsuleEvent event);

struct CapsuleOptions {
  std::string path;  // "": none is kept
  CapsuleEvent event = CapsuleEvent::nan;
  uint64_t step = 0;          // CapsuleEvent::step
  uint64_t keep_steps = 50;   // so many before the event, or as many as there were; at most kMostKeptSteps
  bool keep_samples = false;  // the samples of its steps are in it, for where the data cannot be read
};
inline constexpr uint64_t kMostKeptSteps = 1 << 20;
// Of CpuOptions, that verbs take and capsules hold: more than any machine has cores, and few enough for their stacks.
inline constexpr int64_t kMostThreads = 1024;

// "step 3", "steps 3 to 7".
std::string steps_text(uint64_t first, uint64_t last);

// Which samples of the training data a batch has, and a hash of what they were.
struct CapsuleBatch {
  std::vector<int64_t> samples;
  uint64_t hash = 0;
};
uint64_t hash_of(const Batch& batch);

struct CapsuleStep {
  std::vector<CapsuleBatch> batches;  // training.accumulation of them
  double loss = 0;
  double scale = 1;  // the loss scale in force
  bool skipped = false;
};

// Steps that followed a checkpoint.
struct CapsuleSteps {
  std::string event;  // that the last of them ended with, in words
  std::vector<CapsuleStep> steps;
  uint64_t weights_fingerprint = 0;  // after the last of them (TrainResult)
  std::string machine;               // Backend::description
  CpuOptions cpu;                    // as asked for
  CpuOptions cpu_in_use;             // as that turned out to be
};

// What came of CapsuleOptions.
struct CapsuleOutcome {
  std::string path;
  bool written = false;
  std::string event;
  uint64_t first_step = 0, last_step = 0;
  std::string failure;  // why none was written though the event came, or ""
};

}  // namespace ulpscope
