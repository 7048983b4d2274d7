#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kDampedByEpsilon{
    "updates.damped_by_epsilon",
    "Adam's eps ({epsilon:g}) exceeds the root of the second moment for {damped} of {elements} elements: their updates are more "
    "than halved."};
constexpr Template kDampedInUpdates{"updates.damped_by_epsilon.updates",
                                    "This holds in {damped_updates} of {updates} recorded updates of their parameters."};
constexpr Template kClippingShrinksRoots{
    "updates.damped_by_epsilon.clipping",
    "Clipping shrinks the gradients, and these roots with them, at least {ratio} in each of {steps} steps."};
constexpr Template kOrSmallerEpsilon{"advice.or_smaller_epsilon", "{said}, or lower eps{epsilon:brackets}."};
constexpr Template kSmallerEpsilon{"advice.smaller_epsilon", "Lower eps{epsilon:brackets}."};
constexpr Template kSmallerEpsilonForFactor{"advice.smaller_epsilon_for_loss_factor",
                                            "Lower eps{epsilon:brackets} by as much as the loss factor{factor:brackets} lowers the "
                                            "gradients."};

// Rows of second moments with magnitudes, in steps that are judged.
struct Moments {
  uint64_t rows = 0, damped = 0;  // damped: eps is larger than the root of every one, corrected for its bias
  double last_ratio = 0;          // eps over the largest root of the last row
  std::optional<RowPosition> first_damped = {};
};

// A row is taken to be the t-th update where it is the t-th row of its rank. Updates that are in no row, before the trace began or
// with another recording, would make t larger and the corrected moments smaller.
Moments judge_moments(const RunFacts& facts, uint32_t tensor, double eps, double beta2) {
  const AnalysisContext& context = facts.context;
  const StepRange steps{0, std::min(context.options.steps.last, facts.step_facts.broken_from())};
  Moments moments;
  for (const int32_t rank : context.trace.ranks()) {
    double t = 0;
    const auto add = [&](const TensorRow& row) {
      t += 1;
      if (!context.options.asks_for(row.step) || row.known != StatisticsLevel::values) return;
      const double root = std::sqrt(row.statistics.largest / (1 - std::pow(beta2, t)));
      ++moments.rows;
      if (row.statistics.nonfinite() == 0 && root > 0 && eps > root) {
        ++moments.damped;
        keep_first(moments.first_damped, std::optional(position_of(row, rank)));
      }
      if (root > 0) moments.last_ratio = eps / root;
    };
    context.trace.of_rank(rank).visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
      std::for_each(rows.begin(), rows.end(), add);
      return true;
    });
  }
  return moments;
}

Advice advice_on_damping(const RunFacts& facts, double eps) {
  const SettingNames& settings = facts.context.settings;
  const Clipping& clipping = facts.judged_steps().clipping;
  Advice advice = clipping.clips_much() ? clip_less(facts) : Advice();
  const Setting epsilon = advice.lower(settings.now_of(SettingKind::epsilon, eps));
  if (clipping.clips_much())
    advice.text.begin_with(kOrSmallerEpsilon, {{"epsilon", epsilon}});
  else if (settings.number(SettingKind::loss_factor).value_or(1) < 1)
    advice.text = kSmallerEpsilonForFactor({{"epsilon", epsilon}, {"factor", settings.now(SettingKind::loss_factor)}});
  else
    advice.text = kSmallerEpsilon({{"epsilon", epsilon}});
  return advice;
}

// Adam divides by the root of the second moment, corrected for its bias, plus eps. Where eps is larger than that root of every
// element, each update is less than half of what it would be without.
void find_damped(const RunFacts& facts, Findings& found) {
  // Far below the largest root of the run eps damps no update that matters, and the rows need not be looked at one by one.
  constexpr double kNear = 0.1;
  Suspects suspects(facts.selection);
  uint64_t damped = 0, all = 0, rows = 0, damped_rows = 0;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const OpInfo& op = facts.selection.op(i);
    if (!makes_as(op.function, facts.selection.tensor(i).slot, Meaning::second_moment)) continue;
    const RangeTotals& totals = judged.totals;
    const auto eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
    if (totals.rows == 0 || !eps || !beta2 || !(*beta2 >= 0 && *beta2 < 1)) continue;
    const uint64_t elements = totals.elements / totals.rows;
    all += elements;
    if (!(*eps > kNear * std::sqrt(totals.recorded.largest))) continue;
    const Moments moments = judge_moments(facts, i, *eps, *beta2);
    if (moments.rows == 0 || 10 * moments.damped < 9 * moments.rows) continue;
    damped += elements;
    rows += moments.rows;
    damped_rows += moments.damped;
    suspects.add(moments.last_ratio, i,
                 {{"eps_over_last_root", moments.last_ratio}, {"damped_updates", count_cell(moments.damped), Unit::count}},
                 moments.first_damped);
  }
  // Single parameters whose gradients are next to nothing, as of a bias before a normalization, are no harm.
  if (2 * damped <= all || suspects.empty()) return;
  const double eps = *attribute(facts.selection.op(suspects.worst_tensor()), "eps");
  Extent extent = suspects.extent();
  extent.value = {"eps", eps};
  Sentences title{kDampedByEpsilon({{"epsilon", eps}, {"damped", damped}, {"elements", all}}),
                  kDampedInUpdates({{"damped_updates", damped_rows}, {"updates", rows}})};
  if (const Clipping& clipping = facts.judged_steps().clipping; clipping.clips_much())
    title += kClippingShrinksRoots({{"ratio", shortened_by(clipping)}, {"steps", clipping.steps}});
  found.add_judged(Severity::warning, std::move(title), suspects.worst(), advice_on_damping(facts, eps), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_damped_by_epsilon{
    .code = "updates.damped_by_epsilon",
    .part = Part::updates,
    .raised =
        "For most elements Adam's eps was larger than the root of the second moment, corrected for its bias, in 90% of the "
        "updates.",
    .meaning = "Updates are less than half as large as without eps; the run learns slowly.",
    .help = "Lower eps.",
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "updates.lost"},
    .shown_by = "experiments/failures/adam_eps_too_large.toml",
    .find = find_damped,
};

}  // namespace ulpscope::findings
