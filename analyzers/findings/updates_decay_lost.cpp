#include <algorithm>

#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kDecayLost{"updates.decay_lost",
                              "Weight decay was rounded away: only {arrived} of it changed the stored weights of "
                              "{parameters:count parameter}."};
constexpr Template kAllDecayLost{"updates.decay_lost.all",
                                 "Weight decay was rounded away: none of it changed the stored weights of "
                                 "{parameters:count parameter}."};
constexpr Template kBelowHalfAnUlp{"updates.decay_lost.below_half_an_ulp",
                                   "Rounded to nearest, a decay below half an ulp of the weight changes nothing."};
constexpr Template kKeepDecay{"advice.keep_decay",
                              "Use FP32 master weights{masters:brackets}, or round updates stochastically{rounding:brackets}."};

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
  const Setting masters = advice.set(facts.context.settings.switched(SettingKind::master_weights, true));
  advice.text = kKeepDecay({{"masters", masters}, {"rounding", stochastic_rounding(facts.context.settings, advice)}});
  const Sentence title = arrived > 0 ? kDecayLost({{"arrived", {arrived, Unit::share}}, {"parameters", suspects.size()}})
                                     : kAllDecayLost({{"parameters", suspects.size()}});
  found.add_judged(Severity::warning, {title, kBelowHalfAnUlp()}, suspects.worst(), std::move(advice), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_decay_lost{
    .code = "updates.decay_lost",
    .part = Part::updates,
    .raised = "Less than half of the weight decay changed the stored weights; the rest was rounded away.",
    .meaning = "The weights decay less than the run is set up for.",
    .help = "FP32 master weights, stochastic rounding, or a decay in fewer, larger steps.",
    .shown_by = "experiments/failures/weight_decay_lost_bf16.toml",
    .find = find_lost_decay,
};

}  // namespace ulpscope::findings
