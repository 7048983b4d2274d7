#include "ulpscope/analyzers/judgements/update_judgement.h"

#include <algorithm>

#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

// An FP32 weight is made by FP32 arithmetic, which rounds to nearest whatever the mode.
SmallUpdates rounding_of_small(const TensorInfo& weight) {
  if (!is_narrow(weight.dtype)) return SmallUpdates::fp32;
  const RoundingMode mode = weight.rounding;
  if (mode == RoundingMode::stochastic) return SmallUpdates::stochastic;
  return is_directed(mode) ? SmallUpdates::directed : SmallUpdates::nearest;
}

}  // namespace

UpdateJudgement::UpdateJudgement(const AnalysisContext& context, const StepTotals& steps, const StepTotals& judged,
                                 const UpdateFacts& facts)
    : whole_(facts.updates().whole()) {
  const RunUpdates& before_break = facts.updates().judged(room_);
  const PerTensor<UpdateTotals>& by_tensor = before_break.weights;
  for (uint32_t i = 0; i < context.selection.size(); ++i) {
    const UpdateTotals* const totals = by_tensor.find(i);
    if (totals == nullptr) continue;
    const TensorInfo& tensor = context.selection.tensor(i);
    if (is_average_of_weights(tensor, context.selection.op(i))) {
      averages_.push_back({i, *totals, rounding_of_small(tensor)});
      continue;
    }
    weights_.push_back({i, *totals, rounding_of_small(tensor)});
    sum_.append(*totals);
  }
  for (uint32_t i = 0; i < context.selection.size(); ++i) {
    const SumTotals* const totals = before_break.running_sums.find(i);
    const TensorInfo& tensor = context.selection.tensor(i);
    if (totals == nullptr || (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16)) continue;
    const bool of_gradients = is_gradient(tensor.role) && context.selection.op(i).phase == Phase::backward;
    running_sums_.push_back({i, *totals, of_gradients, rounding_of_small(tensor)});
  }
  const bool is_whole = !context.options.restricts_steps() && context.options.modules.empty() && context.options.ops.empty();
  none_applied_ = is_whole && sum_.rows > 0 && sum_.all.nonzero == sum_.all.lost && 2 * judged.count >= steps.count;
}

bool UpdateJudgement::RunningSum::is_stagnant() const {
  if (rounding == SmallUpdates::stochastic) return false;  // which loses nothing on average
  // Each step begins its gradients anew, and other sums may go on.
  const double sum = of_gradients ? totals.sums : totals.largest;
  return totals.lost_share() >= SumTotals::kMostLost && totals.lost() >= SumTotals::kMostLost * sum;
}

std::vector<UpdateJudgement::Lost> UpdateJudgement::lost(SmallUpdates rounding, double limit) const {
  std::vector<Lost> lost;
  for (const Weight& weight : weights_) {
    const CountedUpdates& missed = weight.totals.missed;
    if (missed.nonzero == 0 || weight.rounding != rounding) continue;
    if (2 * missed.lost_to_decay > missed.lost) continue;  // a matter of updates.decay_lost
    const double share = static_cast<double>(missed.lost) / static_cast<double>(missed.nonzero);
    if (share > limit) lost.push_back({share, &weight});
  }
  std::stable_sort(lost.begin(), lost.end(), [](const Lost& a, const Lost& b) { return a.share > b.share; });
  return lost;
}

}  // namespace ulpscope
