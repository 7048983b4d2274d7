#include "ulpscope/analyzers/findings/update_text.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLargerNorm{"advice.clip_to_larger_norm", "Clip to a larger norm{norm:brackets}"};
constexpr Template kLargerValues{"advice.clip_to_larger_values", "Clip to larger values{value:brackets}"};
constexpr Template kLargerNormAndValues{"advice.clip_to_larger_norm_and_values",
                                        "Clip to a larger norm{norm:brackets} and larger values{value:brackets}"};

}  // namespace

void tell_lost_updates(const RunFacts& facts, SmallUpdates rounding, double limit, Severity severity, const Template& title,
                       const Advice& advice, Findings& found, const Sentences& more) {
  if (facts.updates().none_applied()) return;
  const std::vector<UpdateJudgement::Lost> lost = facts.updates().lost(rounding, limit);
  if (lost.empty()) return;
  std::vector<Evidence> evidence;
  Extent extent;
  for (const auto& [share, weight] : lost) {
    const UpdateTotals& totals = weight->totals;
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(weight->tensor),
                          {{"lost", share, Unit::share},
                           {"nonzero_updates", count_cell(totals.missed.nonzero), Unit::count},
                           {"lost_to_decay", count_cell(totals.missed.lost_to_decay), Unit::count}}});
    extent.tensors.push_back(weight->tensor);
    if (totals.first_lost) keep_first(extent.first_step, std::optional(totals.first_lost->step));
  }
  // A bias before a normalisation has gradients of rounding noise, and nothing is lost with them.
  const bool has_matrix = std::any_of(lost.begin(), lost.end(), [&](const UpdateJudgement::Lost& each) {
    return facts.selection.tensor(each.weight->tensor).shape.size() >= 2;
  });
  if (!has_matrix) severity = Severity::info;
  // Where any loss counts, no limit is told.
  Sentences words =
      limit > 0 ? title({{"parameters", lost.size()}, {"limit", {limit, Unit::share}}}) : title({{"parameters", lost.size()}});
  words += more;
  found.add_judged(severity, std::move(words), std::move(evidence), advice, std::move(extent));
}

Advice clip_less(const RunFacts& facts) {
  const SettingNames& settings = facts.context.settings;
  const bool by_norm = settings.number(SettingKind::clip_norm).value_or(0) != 0;
  const bool by_value = settings.number(SettingKind::clip_value).value_or(0) != 0;
  Advice advice;
  const Setting norm = by_value && !by_norm ? Setting() : advice.raise(settings.now(SettingKind::clip_norm));
  const Setting value = by_value ? advice.raise(settings.now(SettingKind::clip_value)) : Setting();
  advice.text = by_norm && by_value ? kLargerNormAndValues({{"norm", norm}, {"value", value}})
                : by_value          ? kLargerValues({{"value", value}})
                                    : kLargerNorm({{"norm", norm}});
  return advice;
}

}  // namespace ulpscope::findings
