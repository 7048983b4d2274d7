// What a capsule is made of, kept while a run goes on: training as it stood twice, some steps apart, and which batches came since.
// So when something happens, the run as it stood at least so many steps before is still there, unless it had just begun.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ulpscope/core/run/capsule.h"
#include "ulpscope/core/run/checkpoint.h"

namespace ulpscope {

class CapsuleRing {
 public:
  explicit CapsuleRing(const CapsuleOptions& options) : options_(options) {}

  // Before each step, until the capsule is written: keeps how training stands, every keep_steps steps.
  void begin_step(uint64_t step, const TrainingState& training);
  void add_batch(std::vector<int64_t> samples) { steps_.back().batches.push_back({std::move(samples), 0}); }
  void end_step(double loss, double scale, bool skipped);

  uint64_t first_step() const { return images_.front().step(); }
  // The numbers of the samples of its steps, each once, in ascending order.
  std::vector<int64_t> samples() const;
  // Writes the capsule that ends with the step before: `end`, with the steps; `data` are what its batches are of. `info` is of the
  // run, but for the step. `kept`: samples(), which are to be in it, or nullptr. Throws.
  void save(CheckpointInfo info, const Dataset& data, CapsuleSteps end, const KeptSamples* kept);

 private:
  CapsuleOptions options_;
  std::vector<TrainingImage> images_;  // two at most, the older one first
  std::vector<CapsuleStep> steps_;     // since the older one
};

// True iff an element is an infinity or a NaN.
bool holds_nonfinite(const Tensor& tensor);

}  // namespace ulpscope
