#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kFitUnknown{"scale.fit_unknown",
                               "The loss scales that fit are unknown: the trace has counts of the gradients, but no "
                               "magnitudes."};
constexpr Template kRecordMagnitudes{"advice.record_magnitudes", "Record magnitudes too{level:brackets}."};

void find_unknown_fit(const RunFacts& facts, Findings& found) {
  const StepFit& fit = facts.fitting().run;
  if (facts.scale().scaling == LossScaling::no_steps || fit.largest || fit.smallest) return;
  if (facts.scale().ranges().gradients_without_values == 0) return;
  found.add(Severity::info, kFitUnknown(), {},
            kRecordMagnitudes({{"level", facts.context.settings.now(SettingKind::recording_level)}}));
}

}  // namespace

extern constinit const FindingRule scale_fit_unknown{
    .code = "scale.fit_unknown",
    .part = Part::scale,
    .raised = "Gradients were recorded as counts only.",
    .meaning = "The loss scales that fit are unknown.",
    .help = "Record magnitudes too.",
    .is_about_run = false,
    .shown_by = "experiments/failures/dead_relu.toml --record health",
    .find = find_unknown_fit,
};

}  // namespace ulpscope::findings
