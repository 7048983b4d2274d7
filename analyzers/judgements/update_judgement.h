// What became of the updates that an optimizer asked for, in the steps before the run broke.
#pragma once

#include <vector>

#include "ulpscope/analyzers/totals/update_facts.h"

namespace ulpscope {

// How a weight's rounding treats updates that are small beside its ulp.
enum class SmallUpdates : uint8_t { nearest, fp32, stochastic, directed };

class UpdateJudgement {
 public:
  // All arguments outlive it.
  UpdateJudgement(const AnalysisContext& context, const StepTotals& steps, const StepTotals& judged, const UpdateFacts& facts);
  UpdateJudgement(const UpdateJudgement&) = delete;

  struct Weight {
    uint32_t tensor;
    const UpdateTotals& totals;
    SmallUpdates rounding;
  };
  const std::vector<Weight>& weights() const { return weights_; }    // of which there were updates, by their indices
  const std::vector<Weight>& averages() const { return averages_; }  // the same of running averages of weights
  const UpdateTotals& sum() const { return sum_; }                   // of all weights
  struct RunningSum {
    uint32_t tensor;
    const SumTotals& totals;
    bool of_gradients;  // that a backward pass adds up for a step
    SmallUpdates rounding;

    // Lost the limit of what was added, and of the sum itself: a few addends that are absorbed are next to nothing of it.
    bool is_stagnant() const;
  };
  const std::vector<RunningSum>& running_sums() const { return running_sums_; }  // in 16 bits, by their indices
  const RunUpdates& whole() const { return whole_; }                             // of all steps, those after the run broke too
  // No update of the run as a whole changed a weight, which steps or modules left out could tell another story of.
  bool none_applied() const { return none_applied_; }

  struct Lost {
    double share;  // of the weight's nonzero updates in steps that were not fitted
    const Weight* weight;
  };
  // The weights with that rounding that lost more than the limit, the worst first.
  std::vector<Lost> lost(SmallUpdates rounding, double limit) const;

 private:
  RunUpdates room_;
  const RunUpdates whole_;
  std::vector<Weight> weights_, averages_;
  std::vector<RunningSum> running_sums_;
  UpdateTotals sum_;
  bool none_applied_;
};

}  // namespace ulpscope
