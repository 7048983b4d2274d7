#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/suspects.h"

namespace ulpscope::findings {

namespace {

// Adam divides by the root of the second moment, corrected for its bias, plus eps. Where eps is larger than that root of every
// element, each update is less than half of what it would be without.
void find_damped(const RunFacts& facts, Findings& found) {
  constexpr uint8_t kSecondMoment = 2;  // the outputs are the weight and the two moments
  Suspects suspects(facts.selection);
  uint64_t damped = 0, all = 0;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const OpInfo& op = facts.selection.op(i);
    if (op.function != OpFunction::adam_update || facts.selection.tensor(i).slot != kSecondMoment) continue;
    const RangeTotals& totals = judged.totals;
    const auto eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
    if (totals.rows == 0 || !eps || !beta2 || !(*beta2 >= 0 && *beta2 < 1)) continue;
    const uint64_t elements = totals.elements / totals.rows;
    all += elements;
    const double corrected = totals.recorded.largest / (1 - std::pow(*beta2, static_cast<double>(totals.rows)));
    if (!(totals.recorded.largest > 0) || !(*eps > std::sqrt(corrected))) continue;
    damped += elements;
    const double ratio = *eps / std::sqrt(corrected);
    suspects.add(ratio, i, {{"eps_over_largest_root", ratio}, {"largest_second_moment", totals.recorded.largest}});
  }
  // Single parameters whose gradients are next to nothing, as of a bias before a normalisation, are no harm.
  if (2 * damped <= all || suspects.empty()) return;
  found.add_judged(
      Severity::warning,
      fmt::format("Adam's eps, {:g}, was larger than the root of every second moment of {} of {} elements: it made their "
                  "updates less than half as large.",
                  *attribute(facts.selection.op(suspects.worst_tensor()), "eps"), damped, all),
      suspects.worst(),
      fmt::format("A smaller eps{}: where a loss is multiplied by a factor, eps has to be as well.",
                  in_brackets({facts.context.settings.now(SettingKind::epsilon)})),
      suspects.extent());
}

}  // namespace

extern constinit const FindingRule updates_damped_by_epsilon{
    .code = "updates.damped_by_epsilon",
    .part = Part::ranges,
    .raised = "Adam's eps was larger than the root of every second moment of most elements.",
    .meaning = "Updates are less than half as large as without eps; the run learns slowly.",
    .help = "A smaller eps.",
    .explains = {"run.no_better_than_guessing"},
    .shown_by = "experiments/failures/adam_eps_too_large.toml",
    .find = find_damped,
};

}  // namespace ulpscope::findings
