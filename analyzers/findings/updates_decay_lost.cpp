#include <algorithm>

#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kDecayLost{"updates.decay_lost",
                              "Weight decay was rounded away: of what was asked for, {arrived} arrived in the stored values of "
                              "{parameters:count parameter}."};
constexpr Template kKeepDecay{
    "advice.keep_decay",
    "A decay of less than half an ulp of a weight changes nothing: keep FP32 master weights{masters:brackets}, in which it adds "
    "up, or round updates stochastically."};

void find_lost_decay(const RunFacts& facts, Findings& found) {
  if (facts.updates().none_applied()) return;
  Suspects suspects(facts.selection);
  double asked = 0, applied = 0;
  std::optional<uint64_t> first;
  for (const auto& [tensor, totals, unused] : facts.updates().weights()) {
    if (facts.selection.tensor(tensor).rounding == RoundingMode::stochastic) continue;  // on average nothing is lost
    if (!(totals.decay_asked > 0) || !(totals.decay_applied < UpdateTotals::kDecayLimit * totals.decay_asked)) continue;
    asked += totals.decay_asked;
    applied += totals.decay_applied;
    const double arrived = std::max(0.0, totals.decay_applied) / totals.decay_asked;
    keep_first(first, totals.first_decay_lost);
    suspects.add(1 - arrived, tensor,
                 {{"arrived", arrived, Unit::share}, {"decay_asked", totals.decay_asked}, {"decay_applied", totals.decay_applied}});
  }
  if (suspects.empty()) return;
  Extent extent = suspects.extent();
  extent.first_step = first;
  const double arrived = std::max(0.0, applied) / asked;
  extent.value = {"arrived", arrived, Unit::share};
  Advice advice;
  advice.text = kKeepDecay({{"masters", advice.set(facts.context.settings.switched(SettingKind::master_weights, true))}});
  advice.note({.kind = SettingKind::arithmetic_of_ops, .value = std::string(facts.context.settings.words().stochastic_updates)});
  found.add_judged(Severity::warning, kDecayLost({{"arrived", {arrived, Unit::share}}, {"parameters", suspects.size()}}),
                   suspects.worst(), std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_decay_lost{
    .code = "updates.decay_lost",
    .part = Part::updates,
    .raised = "Less than half of the weight decay that was asked for arrived in the stored weights.",
    .meaning = "The weights are not decayed as the run was set up to.",
    .help = "FP32 master weights, or a decay in fewer, larger steps.",
    .shown_by = "experiments/failures/weight_decay_lost_bf16.toml",
    .find = find_lost_decay,
};

}  // namespace ulpscope::findings
