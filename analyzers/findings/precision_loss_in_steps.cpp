#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/subject/training_loss.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossInSteps{"precision.loss_in_steps",
                                "The loss is a number in {format}: near {loss:.4g} it moves in steps of {ulp:.3g}."};
constexpr Template kFewValues{
    "precision.loss_in_steps.values",
    "The last {losses} losses have {values:count value}: early stopping and schedules see no change below "
    "half a step."};
constexpr Template kLossInFp32{"advice.loss_in_fp32", "Compute the loss in FP32, from the model's output cast to FP32."};

constexpr size_t kMostLosses = 100, kLeastLosses = 20;
// A loss moves in the steps of its type where it moves by so many ulps at most, from one step to the next at the median.
constexpr double kMostMoved = 2;

void find_loss_in_steps(const RunFacts& facts, Findings& found) {
  const Selection& selection = facts.selection;
  std::vector<uint32_t> narrow;
  for (const uint32_t op : loss_ops(facts.context))
    for (const uint32_t tensor : facts.context.graph.made_by(op, 0)) {
      const TensorInfo& info_of = selection.tensor(tensor);
      if (info_of.role == Role::loss && is_narrow(info_of.dtype)) narrow.push_back(tensor);
    }
  if (narrow.empty()) return;
  std::vector<StepLoss> losses = losses_of(facts, facts.judged_range());
  if (losses.size() < kLeastLosses) return;
  if (losses.size() > kMostLosses) losses.erase(losses.begin(), losses.end() - kMostLosses);
  const FloatFormat& format = *info(selection.tensor(narrow.front()).dtype).format;
  // The sum or mean of several losses has finer steps.
  const auto is_of_format = [&](const StepLoss& one) {
    return std::isfinite(one.loss) && round_to_format(format, one.loss) == one.loss;
  };
  if (!std::all_of(losses.begin(), losses.end(), is_of_format)) return;
  std::vector<double> values, moves;
  for (const StepLoss& one : losses) values.push_back(one.loss);
  const double middle = median(values), step = ulp(format, middle);
  for (size_t i = 1; i < values.size(); ++i) moves.push_back(std::fabs(values[i] - values[i - 1]) / step);
  if (middle == 0 || median(moves) > kMostMoved) return;
  const std::set<double> different(values.begin(), values.end());
  found.add(Severity::info,
            {kLossInSteps({{"format", format_name(format)}, {"loss", middle}, {"ulp", step}}),
             kFewValues({{"losses", losses.size()}, {"values", different.size()}})},
            {{selection.key(narrow.front()),
              {{"ulp", step}, {"median_move_ulps", median(moves)}, {"values", count_cell(different.size()), Unit::count}}}},
            Advice(kLossInFp32()), {.tensors = narrow, .first_step = losses.front().step});
}

}  // namespace

extern constinit const FindingRule precision_loss_in_steps{
    .code = "precision.loss_in_steps",
    .part = Part::errors,
    .raised =
        "The losses of the last steps, 20 to 100 of them, are numbers of FP16 or BF16, and move by 2 ulps or less from one to the "
        "next at the median. A note: gradients do not see the rounding of the loss.",
    .meaning =
        "A BF16 number between 2 and 4 is a multiple of 1/64: what a step gains is less, and the curve stands still or jumps.",
    .help = "The loss in FP32, from logits that are cast before it.",
    .shown_by = "experiments/failures/loss_in_steps_of_bf16.toml",
    .find = find_loss_in_steps,
};

}  // namespace ulpscope::findings
