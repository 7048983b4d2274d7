#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleTooSmall{"scale.under_scaled",
                                  "The loss scale of {scale} is too small: {flushed} of one gradient's nonzero elements "
                                  "are flushed to zero."};
constexpr Template kSmallestThatFits{"scale.under_scaled.smallest", "The smallest loss scale that fits is {smallest}."};

void find_under_scaled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const std::optional<ExponentBounds>& smallest = facts.fitting().run.smallest;
  if (scale.scaling != LossScaling::scaled || !scale.flushes() || scale.none_fits()) return;
  if (!smallest || smallest->lower == ExponentBounds::kNoLower || !(std::log2(scale.judged_scale) < smallest->lower)) return;
  Advice advice = scaling_advice(facts.precision(), facts.context.settings);
  advice.text.begin_with(kScaleTheLoss);
  found.add(Severity::warning,
            {kScaleTooSmall({{"scale", scale_value(scale.judged_scale)}, {"flushed", {scale.flushed_share(), Unit::share}}}),
             kSmallestThatFits({{"smallest", scale_value(smallest)}})},
            {smallest_fitting_evidence(facts), largest_fitting_evidence(facts)}, std::move(advice));
}

}  // namespace

extern constinit const FindingRule scale_under_scaled{
    .code = "scale.under_scaled",
    .part = Part::scale,
    .raised = "Gradients are flushed to zero at the run's loss scale, and would not be at a larger one that fits.",
    .meaning = "Small gradients underflow and update no weight.",
    .help = "Start with a larger loss scale, or shorten its growth interval.",
    .shown_by = "experiments/failures/loss_scale_too_small.toml",
    .find = find_under_scaled,
};

}  // namespace ulpscope::findings
