#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLost{"updates.lost",
                         "{parameters:count parameter} lost more than {limit:%} of the nonzero updates: they were too small to "
                         "change the weight."};
constexpr Template kKeptUnchanged{"updates.lost.stochastic",
                                  "{parameters:count parameter} kept the weight unchanged in more than {limit:%} of the nonzero "
                                  "updates, as stochastic rounding does with updates below an ulp: one of a tenth of an ulp "
                                  "changes the weight by an ulp one time in ten."};
constexpr Template kNothingLostOnAverage{"updates.lost.none_on_average", "On average nothing is lost."};
constexpr Template kStochasticOps{"advice.stochastic_ops", "{ops} of the update"};
constexpr Template kStochasticOpsWithMath{"advice.stochastic_ops_with_math", "{ops} of the update, with {math}"};
constexpr Template kKeepUpdates{"advice.keep_updates",
                                "Keep FP32 master weights, round the update stochastically{rounding:brackets}, or raise the "
                                "learning rate: an update below half an ulp of the weight is rounded away."};
constexpr Template kBelowUlpOfFp32{"advice.below_ulp_of_fp32",
                                   "An update below half an ulp of an FP32 weight, 2^-25 to 2^-24 of its magnitude, is rounded "
                                   "away, in every rounding mode{instead}."};
constexpr Template kRaiseRate{"advice.raise_rate_or_shrink_weights",
                              ": raise the learning rate{rate:brackets}, or make the weights smaller (initial values, weight "
                              "decay)"};

// A phrase, or nothing.
Sentence stochastic_rounding(const SettingNames& settings, Advice& advice) {
  const Setting ops = advice.set(settings.name(SettingKind::arithmetic_of_ops), std::string(settings.words().stochastic_updates));
  if (ops.empty()) return {};
  const SettingMention math = settings.changed(SettingKind::update_math, settings.words().parameter_math, settings.words().fp32);
  return math.empty() ? kStochasticOps({{"ops", ops}}) : kStochasticOpsWithMath({{"ops", ops}, {"math", math}});
}

void find_lost(const RunFacts& facts, Findings& found) {
  if (facts.updates().none_applied()) return;  // which is said already
  const Advice why = why_updates_are_short(facts);
  const SettingChange faster{.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise};
  Advice narrow = why;
  narrow.note({.kind = SettingKind::master_weights, .value = std::string(facts.context.settings.words().on)});
  narrow.text += kKeepUpdates({{"rounding", stochastic_rounding(facts.context.settings, narrow)}});
  narrow.note(faster);
  tell_lost_updates(facts, SmallUpdates::nearest, kLostLimit, Severity::warning, kLost, narrow, found);
  Advice wide = why;
  Value instead;
  if (why.text.empty()) {
    instead = kRaiseRate({{"rate", facts.context.settings.only_now(SettingKind::learning_rate)}});
    wide.note(faster);
    wide.note({.kind = SettingKind::weight_decay, .way = SettingChange::Way::raise});
  }
  wide.text += kBelowUlpOfFp32({{"instead", instead}});
  tell_lost_updates(facts, SmallUpdates::fp32, kLostLimit, Severity::warning, kLost, wide, found);
  tell_lost_updates(facts, SmallUpdates::stochastic, kLostLimit, Severity::info, kKeptUnchanged, {}, found,
                    kNothingLostOnAverage());
}

}  // namespace

extern constinit const FindingRule updates_lost{
    .code = "updates.lost",
    .part = Part::updates,
    .raised = "Updates were too small to change the stored weight.",
    .meaning = "The weights learn less than the optimizer asked for.",
    .help = "FP32 master weights, stochastic rounding, or a larger learning rate.",
    .explains = {"updates.decay_lost", "run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/updates_lost_bf16.toml",
    .find = find_lost,
};

}  // namespace ulpscope::findings
