
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLost{"updates.lost",
                         "{lost} of the nonzero updates to {formats} weights were rounded away: below half an ulp, w + dw == w."};
constexpr Template kParametersLost{"updates.lost.parameters",
                                   "{parameters} of {all:count parameter} lost more than {limit:%} (worst: `{worst}`, "
                                   "{worst_share})."};
constexpr Template kAllParametersLost{"updates.lost.all_parameters",
                                      "All {parameters:count parameter} lost more than {limit:%} (worst: `{worst}`, "
                                      "{worst_share})."};
constexpr Template kNeverChanged{"updates.lost.never_changed",
                                 "{names} did not change: all of {count:either its|their} updates were rounded away."};
constexpr Template kGain{"updates.lost.gain", "`{name}`"};
constexpr Template kOtherGains{"updates.lost.other_gains", "{others} more"};
constexpr Template kUlpOfFp32{"updates.lost.ulp_of_fp32", "Half an ulp of an FP32 weight is 2^-25 to 2^-24 of its magnitude."};
constexpr Template kFittedLeftOut{"updates.lost.fitted_left_out",
                                  "{steps:count step} with a loss of about 0 {steps:either is|are} not counted."};
constexpr Template kKeptUnchanged{"updates.lost.stochastic",
                                  "Stochastic rounding left {parameters:count parameter} unchanged in more than {limit:%} of the "
                                  "nonzero updates."};
constexpr Template kNothingLostOnAverage{"updates.lost.none_on_average",
                                         "On average nothing is lost: an update of 0.1 ulp changes the weight by one ulp 10% of "
                                         "the time."};
constexpr Template kKeepUpdates{"advice.keep_updates",
                                "Use FP32 master weights{masters:brackets}, round updates stochastically{rounding:brackets}, or "
                                "raise the learning rate{rate:brackets}."};
constexpr Template kRaiseRate{
    "advice.raise_rate_or_shrink_weights",
    "Raise the learning rate{rate:brackets}, or make the weights smaller (initial values, weight decay)."};

// Gains that rounding kept at what they were.
Sentence never_changed(const RunFacts& facts, std::span<const UpdateJudgement::Lost> lost) {
  constexpr size_t kNamed = 3;
  Value::List names;
  size_t count = 0;
  for (const UpdateJudgement::Lost& each : lost) {
    if (!is_stuck_gain(facts, *each.weight)) continue;
    if (++count <= kNamed) names.push_back(kGain({{"name", parameter_name(facts.selection, each.weight->tensor)}}));
  }
  if (count == 0) return {};
  if (count > kNamed) names.push_back(kOtherGains({{"others", count - kNamed}}));
  return kNeverChanged({{"names", Value::list(std::move(names))}, {"count", count}});
}

Sentences lost_title(const RunFacts& facts, SmallUpdates rounding, std::span<const UpdateJudgement::Lost> lost) {
  CountedUpdates sum;
  FormatNames formats;
  const std::vector<UpdateJudgement::Weight>& weights = facts.updates().weights();
  for (const UpdateJudgement::Weight& weight : weights) {
    if (weight.rounding != rounding) continue;
    sum += weight.totals.missed;
    formats.add(facts.selection.tensor(weight.tensor).dtype);
  }
  Sentences title{kLost({{"lost", share_value(sum.lost, sum.nonzero)}, {"formats", formats.list()}})};
  const Argument parameters{"parameters", lost.size()}, limit{"limit", {kLostLimit, Unit::share}},
      worst{"worst", parameter_name(facts.selection, lost.front().weight->tensor)},
      worst_share{"worst_share", {lost.front().share, Unit::share}};
  if (lost.size() == weights.size() && lost.size() > 1)
    title += kAllParametersLost({parameters, limit, worst, worst_share});
  else
    title += kParametersLost({parameters, {"all", weights.size()}, limit, worst, worst_share});
  if (const Sentence stuck = never_changed(facts, lost); !stuck.empty()) title += stuck;
  if (rounding == SmallUpdates::fp32) title += kUlpOfFp32();
  if (const StepSet& fitted = facts.judged_steps().fitted; !fitted.empty()) title += kFittedLeftOut({{"steps", fitted.size()}});
  return title;
}

Sentences kept_title(std::span<const UpdateJudgement::Lost> lost) {
  return {kKeptUnchanged({{"parameters", lost.size()}, {"limit", {kLostLimit, Unit::share}}}), kNothingLostOnAverage()};
}

void find_lost(const RunFacts& facts, Findings& found) {
  if (facts.updates().none_applied()) return;  // which is said already
  const Advice why = why_updates_are_short(facts);
  const SettingChange faster{.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise};
  const SettingNames& settings = facts.context.settings;
  const SettingMention rate = settings.only_now(SettingKind::learning_rate);
  Advice narrow = why;
  const Setting masters = narrow.set(settings.switched(SettingKind::master_weights, true));
  narrow.text += kKeepUpdates({{"masters", masters}, {"rounding", stochastic_rounding(settings, narrow)}, {"rate", rate}});
  narrow.note(faster);
  Advice wide = why;
  if (why.text.empty()) {
    wide.text = kRaiseRate({{"rate", rate}});
    wide.note(faster);
    if (settings.number(SettingKind::weight_decay).value_or(0) > 0)
      wide.note({.kind = SettingKind::weight_decay, .way = SettingChange::Way::raise});
  }
  for (const auto& [rounding, advice] : {std::pair(SmallUpdates::nearest, &narrow), std::pair(SmallUpdates::fp32, &wide)})
    tell_lost_updates(
        facts, rounding, kLostLimit, Severity::warning,
        [&, how = rounding](const auto& lost) { return lost_title(facts, how, lost); }, *advice, found);
  tell_lost_updates(facts, SmallUpdates::stochastic, kLostLimit, Severity::info, kept_title, {}, found);
}

}  // namespace

extern constinit const FindingRule updates_lost{
    .code = "updates.lost",
    .part = Part::updates,
    .raised =
        "More than 50% of a parameter's nonzero updates left the stored weight as it was. A note where these are vectors alone, "
        "unless one is the gain of a normalization, or multiplies values, and all of its updates, 10 or more, were lost.",
    .meaning =
        "An update below half an ulp of the weight is rounded away: w + dw == w. The run learns less than the optimizer asks for.",
    .help = "FP32 master weights, stochastic rounding, or a larger learning rate.",
    .explains = {"updates.decay_lost", "run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/updates_lost_bf16.toml",
    .find = find_lost,
};

}  // namespace ulpscope::findings
