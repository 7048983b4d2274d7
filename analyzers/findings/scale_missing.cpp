#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/unscaled_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"

namespace ulpscope::findings {

namespace {

void find_missing_scale(const RunFacts& facts, Findings& found) {
  if (!facts.scale().scale_is_missing()) return;
  Advice advice = scaling_advice(facts.precision(), facts.context.settings);
  if (facts.precision().has_short_range) advice.note({.kind = SettingKind::precision, .value = "\"bf16\""});
  found.add(Severity::warning, "The loss was not scaled, and gradients were flushed to zero." + scales_that_would_fit(facts),
            {{{}, {{"flushed_of_the_worst_gradient", facts.scale().flushed_share(), Unit::share}}}},
            advice + (facts.precision().has_short_range ? ", or use BF16." : "."));
}

}  // namespace

extern constinit const FindingRule scale_missing{
    .code = "scale.missing",
    .part = Part::scale,
    .raised = "The loss was not scaled, and gradients were flushed to zero.",
    .meaning = "Small gradients are lost.",
    .help = "Switch the gradient scaler on, or use BF16.",
    .explains = {"scale.none"},
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_missing_scale,
};

}  // namespace ulpscope::findings
