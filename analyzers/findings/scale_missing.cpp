#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/unscaled_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUnscaledAndFlushed{"scale.missing",
                                       "Gradients underflow without loss scaling: {flushed} of one gradient's nonzero "
                                       "elements are flushed to zero."};
constexpr Template kScaleTheLossOrUseBf16{"advice.scale_the_loss_or_use_bf16", "{said}, or use BF16."};

void find_missing_scale(const RunFacts& facts, Findings& found) {
  if (!facts.scale().scale_is_missing()) return;
  const bool has_short_range = facts.precision().has_short_range;
  Advice advice = scaling_advice(facts.precision(), facts.context.settings, has_short_range);
  if (has_short_range) advice.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
  advice.text.begin_with(has_short_range ? kScaleTheLossOrUseBf16 : kScaleTheLoss);
  const double flushed = facts.scale().flushed_share();
  found.add(Severity::warning, {kUnscaledAndFlushed({{"flushed", {flushed, Unit::share}}}), scales_that_would_fit(facts)},
            {{{}, {{"flushed_of_the_worst_gradient", flushed, Unit::share}}}}, std::move(advice));
}

}  // namespace

extern constinit const FindingRule scale_missing{
    .code = "scale.missing",
    .part = Part::scale,
    .raised = "The loss was not scaled, and gradients were flushed to zero.",
    .meaning = "Small gradients underflow and update no weight.",
    .help = "Enable loss scaling, or use BF16.",
    .explains = {"scale.none"},
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_missing_scale,
};

}  // namespace ulpscope::findings
