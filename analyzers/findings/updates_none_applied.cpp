#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoneApplied{"updates.none_applied",
                                "No update changed any weight in {updates:count recorded update}: the run learns nothing."};
constexpr Template kRateWasZero{"advice.rate_was_zero", "The learning rate was 0."};
constexpr Template kUpdatesWereZero{"advice.updates_were_zero",
                                    "Every update was zero, for every gradient was: the findings on ranges say where they "
                                    "were lost."};
constexpr Template kTooSmallForFp32{
    "advice.updates_too_small_for_fp32",
    "Every update was too small for its FP32 weight, less than half an ulp: raise the learning rate."};
constexpr Template kTooSmallForWeight{
    "advice.updates_too_small_for_weights",
    "Every update was too small for its weight, less than half an ulp where roundings are to nearest: keep FP32 master "
    "weights{masters:brackets}, or raise the learning rate."};

Advice why_none(const RunFacts& facts) {
  const UpdateJudgement& updates = facts.updates();
  if (facts.judged_steps().rate_was_zero) return kRateWasZero();
  if (updates.sum().all.nonzero == 0) return kUpdatesWereZero();
  if (Advice why = why_updates_are_short(facts); !why.text.empty()) return why;
  const bool narrow = std::any_of(updates.weights().begin(), updates.weights().end(), [&](const UpdateJudgement::Weight& weight) {
    return is_narrow(facts.selection.tensor(weight.tensor).dtype);
  });
  Advice advice = kTooSmallForFp32();
  if (narrow)
    advice.text = kTooSmallForWeight({{"masters", advice.set(facts.context.settings.switched(SettingKind::master_weights, true))}});
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
  found.add_judged(Severity::error, kNoneApplied({{"updates", updates.sum().rows}}), std::move(evidence), why_none(facts),
                   std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_none_applied{
    .code = "updates.none_applied",
    .part = Part::updates,
    .raised = "No recorded update changed any weight.",
    .meaning = "The run learns nothing.",
    .help = "The finding says why: a learning rate of 0, updates below half an ulp of their weights, or gradients of zeros.",
    .explains = {"run.no_better_than_guessing", "updates.lost", "run.loss_stayed"},
    .shown_by = "experiments/failures/learning_rate_zero.toml",
    .find = find_none_applied,
};

}  // namespace ulpscope::findings
