#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/scale_judgement.h"

namespace ulpscope::findings {

namespace {

void find_unknown_fit(const RunFacts& facts, Findings& found) {
  const StepFit& fit = facts.fitting().run;
  if (facts.scale().scaling == LossScaling::no_steps || fit.largest || fit.smallest) return;
  if (facts.scale().losses().rows_without_values == 0) return;
  found.add(Severity::info, "Which loss scales fit is not known: of the gradients only counts were recorded.", {},
            "Record with `--record stats`, which keeps their magnitudes.");
}

}  // namespace

extern constinit const FindingRule scale_fit_unknown{
    .code = "scale.fit_unknown",
    .part = Part::scale,
    .raised = "Of gradients only counts were recorded.",
    .meaning = "Which scales fit is not known.",
    .help = "`--record stats`.",
    .is_about_run = false,
    .find = find_unknown_fit,
};

}  // namespace ulpscope::findings
