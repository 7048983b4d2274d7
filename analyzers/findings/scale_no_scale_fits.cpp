#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoneFitsRun{"scale.no_scale_fits",
                                "No single loss scale fits the whole run: one gradient needs at least {smallest}, another "
                                "overflows above {largest}."};
constexpr Template kNoneFitsSteps{"scale.no_scale_fits.steps",
                                  "No single loss scale fits all selected steps: one gradient needs at least {smallest}, another "
                                  "overflows above {largest}."};
constexpr Template kDynamicScaleOrBf16{
    "advice.dynamic_scale_or_bf16",
    "Use BF16, which needs no loss scale, or a dynamic scale{dynamic:brackets}, which adapts step "
    "by step."};
constexpr Template kBf16NeedsNone{"advice.bf16_needs_no_scale", "The dynamic scale adapts step by step; BF16 needs none."};

void find_no_scale_fits(const RunFacts& facts, Findings& found) {
  if (facts.scale().scaling != LossScaling::scaled || !facts.scale().none_fits()) return;
  const StepFit& fit = facts.fitting().run;
  Advice advice;
  const Setting dynamic = advice.set(facts.context.settings.switched(SettingKind::scale_dynamic, true));
  advice.text = facts.precision().adapts_scale ? kBf16NeedsNone() : kDynamicScaleOrBf16({{"dynamic", dynamic}});
  advice.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
  found.add(Severity::info,
            (facts.context.options.restricts_steps() ? kNoneFitsSteps : kNoneFitsRun)(
                {{"smallest", power_value(fit.smallest->lower)}, {"largest", power_value(fit.largest->upper)}}),
            {smallest_fitting_evidence(facts), largest_fitting_evidence(facts)}, std::move(advice));
}

}  // namespace

extern constinit const FindingRule scale_no_scale_fits{
    .code = "scale.no_scale_fits",
    .part = Part::scale,
    .raised = "One gradient needs a larger loss scale than the one at which another overflows.",
    .meaning = "A fixed loss scale makes one underflow or the other overflow; a dynamic one adapts step by step.",
    .help = "A dynamic scale, or BF16.",
    .shown_by = "experiments/failures/gradients_fall_with_each_sigmoid.toml --precision fp16",
    .find = find_no_scale_fits,
};

}  // namespace ulpscope::findings
