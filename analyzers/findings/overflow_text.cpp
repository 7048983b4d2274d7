#include "ulpscope/analyzers/findings/overflow_text.h"

#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOverflowKept{"overflow.kept",
                                 "{gradients:count gradient tensor} overflowed in {steps:count step} that {steps:either "
                                 "was|were} not skipped"};
constexpr Template kScaleSkips{"advice.dynamic_scale_skips",
                               "A dynamic loss scale skips such steps{dynamic:brackets}; a lower one keeps the gradients "
                               "finite{factor}."};

}  // namespace

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

Sentence overflow_kept_title(const RunFacts& facts) {
  const GradientJudgement& gradients = facts.gradients();
  return kOverflowKept(
      {{"gradients", facts.selection.count_outputs(gradients.overflow_kept)}, {"steps", gradients.overflow_kept_steps.size()}});
}

Extent kept_extent(const RunFacts& facts, const Suspects& kept) {
  const GradientJudgement& gradients = facts.gradients();
  Extent extent = kept.extent();
  extent.steps = gradients.overflow_kept_steps.size();
  extent.value = {"gradient_tensors", count_cell(facts.selection.count_outputs(gradients.overflow_kept)), Unit::count};
  return extent;
}

Advice overflow_kept_advice(const RunFacts& facts, uint32_t worst) {
  if (!facts.precision().scales_loss && has_range_of_fp32(facts.selection.tensor(worst).dtype)) return kNoTypeHelps();
  const SettingKind scaling = facts.precision().scales_loss ? SettingKind::scale_dynamic : SettingKind::scale_enabled;
  Advice advice;
  const Setting dynamic = advice.set(facts.context.settings.switched(scaling, true));
  if (facts.precision().scales_loss) advice.note({.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower});
  advice.text = kScaleSkips({{"dynamic", dynamic}, {"factor", or_lower_loss_factor(facts, advice)}});
  return advice;
}

}  // namespace ulpscope::findings
