#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

void find_under_scaled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const std::optional<ExponentBounds>& smallest = facts.fitting().run.smallest;
  if (scale.scaling != LossScaling::scaled || !scale.flushes() || scale.none_fits()) return;
  if (!smallest || smallest->lower == ExponentBounds::kNoLower || !(std::log2(scale.judged_scale) < smallest->lower)) return;
  found.add(Severity::warning,
            fmt::format("The loss scale, {}, is too small: gradients are flushed. The smallest fitting scale is {}.",
                        scale_text(scale.judged_scale), cell_text(scale_cell(smallest), Unit::scale)),
            {smallest_fitting_evidence(facts), largest_fitting_evidence(facts)},
            scaling_advice(facts.precision(), facts.context.settings) + ".");
}

}  // namespace

extern constinit const FindingRule scale_under_scaled{
    .code = "scale.under_scaled",
    .part = Part::scale,
    .raised = "Gradients are flushed at the run's loss scale, and would not be at a larger one that fits.",
    .meaning = "Small gradients are lost.",
    .help = "Begin with a larger scale, or let it grow sooner.",
    .shown_by = "experiments/failures/loss_scale_too_small.toml",
    .find = find_under_scaled,
};

}  // namespace ulpscope::findings
