#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoneApplied{"updates.none_applied", "No weight changed in any of {updates:count recorded update}."};
constexpr Template kRateWasZero{"updates.none_applied.rate_was_zero", "The learning rate is 0 in every step."};
constexpr Template kUpdatesWereZero{"updates.none_applied.were_zero", "Every update is zero."};
constexpr Template kRoundedAway{"updates.none_applied.rounded_away", "Every nonzero update was rounded away: w + dw == w."};
constexpr Template kLargerRate{"advice.raise_learning_rate", "Raise the learning rate{rate:brackets}."};
constexpr Template kScheduleIsZero{"advice.schedule_makes_rate_zero",
                                   "Change the schedule{schedule:brackets}: it makes the learning rate 0."};
constexpr Template kWhereGradientsVanish{"advice.where_gradients_vanish",
                                         "`ulpscope ranges {trace}` shows where gradients become zero."};
constexpr Template kMastersOrRate{"advice.masters_or_learning_rate",
                                  "Use FP32 master weights{masters:brackets}, or raise the learning rate{rate:brackets}."};

Sentence why_none(const RunFacts& facts) {
  if (facts.judged_steps().rate_was_zero) return kRateWasZero();
  return facts.updates().sum().all.nonzero == 0 ? kUpdatesWereZero() : kRoundedAway();
}

Advice advice_on_none(const RunFacts& facts) {
  const UpdateJudgement& updates = facts.updates();
  const SettingNames& settings = facts.context.settings;
  const SettingMention rate = settings.only_now(SettingKind::learning_rate);
  if (facts.judged_steps().rate_was_zero) {
    if (settings.number(SettingKind::learning_rate).value_or(0) == 0) return kLargerRate({{"rate", rate}});
    return kScheduleIsZero({{"schedule", Value::list(settings.given_beside(SettingKind::warmup))}});
  }
  if (updates.sum().all.nonzero == 0) return kWhereGradientsVanish({{"trace", trace_name(facts.context.trace)}});
  if (Advice why = why_updates_are_short(facts); !why.text.empty()) return why;
  const bool narrow = std::any_of(updates.weights().begin(), updates.weights().end(), [&](const UpdateJudgement::Weight& weight) {
    return is_narrow(facts.selection.tensor(weight.tensor).dtype);
  });
  Advice advice = kLargerRate({{"rate", rate}});
  if (narrow)
    advice.text = kMastersOrRate({{"masters", advice.set(settings.switched(SettingKind::master_weights, true))}, {"rate", rate}});
  advice.note({.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise});
  return advice;
}

void find_none_applied(const RunFacts& facts, Findings& found) {
  const UpdateJudgement& updates = facts.updates();
  if (!updates.none_applied()) return;
  Extent extent{.first_step = facts.steps().first.step,
                .value = Quantity{"recorded_updates", count_cell(updates.sum().rows), Unit::count}};
  std::vector<Evidence> evidence;
  for (const UpdateJudgement::Weight& weight : updates.weights()) {
    extent.tensors.push_back(weight.tensor);
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(weight.tensor),
                          {{"updates", count_cell(weight.totals.rows), Unit::count},
                           {"nonzero_updates", count_cell(weight.totals.all.nonzero), Unit::count}}});
  }
  found.add_judged(Severity::error, {kNoneApplied({{"updates", updates.sum().rows}}), why_none(facts)}, std::move(evidence),
                   advice_on_none(facts), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_none_applied{
    .code = "updates.none_applied",
    .part = Part::updates,
    .raised = "No recorded update changed any weight.",
    .meaning = "The run learns nothing: the learning rate is 0, every gradient is 0, or every update is rounded away.",
    .help = "A larger learning rate, or FP32 master weights; where gradients are 0, see the findings on ranges.",
    .explains = {"run.no_better_than_guessing", "updates.lost", "run.loss_stayed"},
    .shown_by = "experiments/failures/learning_rate_zero.toml",
    .find = find_none_applied,
};

}  // namespace ulpscope::findings
