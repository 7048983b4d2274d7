// What the table `parameters` says: which updates were lost, what became of weight decay, and how large updates are beside the
// weights that they change. Findings (codes): updates.none_applied, updates.lost, updates.biased, updates.decay_lost, run.diverged,
// run.no_better_than_guessing.
#pragma once

#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

// Of one weight.
struct UpdateTotals {
  uint64_t rows = 0, nonzero = 0, lost = 0, lost_to_decay = 0;
  double decay_asked = 0, decay_applied = 0;  // of rows in which they are known
  std::optional<uint64_t> first_lost = {};    // the first step in which more than half of the nonzero updates were lost, or all

  void append(const UpdateTotals& later);
  void beside(const UpdateTotals& other) { append(other); }
};

// The largest |d| / |w| of a weight of two dimensions or more in one step: biases may begin at zero.
struct UpdateRatio {
  uint64_t step = 0;
  uint32_t tensor = 0;
  double ratio = 0;
};

struct RunUpdates {
  // An update as large as its weight leaves nothing of what the weight was. Of 49 runs it was reached in the three that had a
  // learning rate that no format could have borne, by a factor of 7 and more; all others stayed below 0.13.
  static constexpr double kLarge = 1;

  PerTensor<UpdateTotals> weights;
  std::optional<UpdateRatio> first;        // of the first step that had an update
  std::optional<UpdateRatio> first_large;  // of the first step in which it was kLarge or more

  void append(const RunUpdates& later);
  void beside(const RunUpdates& other);
};

class UpdateFacts {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block);
  void merge(UpdateFacts&& other) { updates_.merge(std::move(other.updates_)); }
  TablesRead reads() const { return {.rows = false, .histograms = false, .parameters = true}; }
  const ByRank<RunUpdates>& updates() const { return updates_; }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<RunUpdates> updates_;
};

void add_update_findings(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report);
// run.diverged
void add_divergence_findings(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report);
// run.no_better_than_guessing
void add_guessing_findings(const AnalysisContext& context, const StepFacts& steps, Report& report);

}  // namespace ulpscope
