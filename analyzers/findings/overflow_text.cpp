#include "ulpscope/analyzers/findings/overflow_text.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

Suspects overflowed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const ScaledRows& rows = judged.scaled;
    suspects.add(static_cast<double>(rows.overflow_kept.empty() ? rows.overflow_skipped.size() : rows.overflow_kept.size()), i,
                 {{"steps", count_cell(rows.overflow_kept.size() + rows.overflow_skipped.size()), Unit::count},
                  {"elements", count_cell(judged.totals.seen.overflowed.lower - judged.totals.saturated), Unit::count}},
                 rows.first_overflow);
  }
  return suspects;
}

std::string overflow_kept_title(const RunFacts& facts) {
  const GradientJudgement& gradients = facts.gradients();
  const uint64_t steps = gradients.overflow_kept_steps.size();
  return fmt::format("{} overflowed in {} that {} not skipped",
                     count_of(facts.selection.count_outputs(gradients.overflow_kept), "gradient tensor"), count_of(steps, "step"),
                     steps == 1 ? "was" : "were");
}

Extent kept_extent(const RunFacts& facts, const Suspects& kept) {
  const GradientJudgement& gradients = facts.gradients();
  Extent extent = kept.extent();
  extent.steps = gradients.overflow_kept_steps.size();
  extent.value = {"gradient_tensors", count_cell(facts.selection.count_outputs(gradients.overflow_kept)), Unit::count};
  return extent;
}

Advice overflow_kept_advice(const RunFacts& facts, uint32_t worst) {
  if (!facts.precision().scales_loss && has_range_of_fp32(facts.selection.tensor(worst).dtype))
    return fmt::format("{}.", kNoTypeHelps);
  const SettingKind scaling = facts.precision().scales_loss ? SettingKind::scale_dynamic : SettingKind::scale_enabled;
  Advice advice;
  advice.text = "A dynamic loss scale skips such steps" +
                in_brackets({advice.set(facts.context.settings.switched(scaling, true))}) +
                "; a lower one keeps the gradients finite";
  if (facts.precision().scales_loss) advice.note({.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower});
  return std::move(advice) + or_lower_loss_factor(facts) + ".";
}

}  // namespace ulpscope::findings
