#include <fmt/format.h>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

void find_no_scale_fits(const RunFacts& facts, Findings& found) {
  if (facts.scale().scaling != LossScaling::scaled || !facts.scale().none_fits()) return;
  const StepFit& fit = facts.fitting().run;
  Advice advice = "A dynamic scale follows the gradients from step to step, and BF16 needs none.";
  advice.note({.kind = SettingKind::scale_dynamic, .value = "true"});
  advice.note({.kind = SettingKind::precision, .value = "\"bf16\""});
  found.add(Severity::info,
            fmt::format("No single loss scale fits {}: one gradient needs at least {}, another overflows above {}.",
                        facts.context.options.restricts_steps() ? "all of these steps" : "the whole run",
                        power_text(fit.smallest->lower), power_text(fit.largest->upper)),
            {smallest_fitting_evidence(facts), largest_fitting_evidence(facts)}, std::move(advice));
}

}  // namespace

extern constinit const FindingRule scale_no_scale_fits{
    .code = "scale.no_scale_fits",
    .part = Part::scale,
    .raised = "One gradient needs a larger loss scale than another one bears.",
    .meaning = "A dynamic scale follows them step by step.",
    .help = "A dynamic scale, or BF16.",
    .shown_by = "experiments/failures/gradients_fall_with_each_sigmoid.toml --precision fp16",
    .find = find_no_scale_fits,
};

}  // namespace ulpscope::findings
