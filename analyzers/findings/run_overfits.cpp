#include <algorithm>
#include <cmath>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOverfits{"run.overfits",
                             "The run overfits: its test loss rose from {lowest:.4g} (step {lowest_step}) to {last:.4g} (step "
                             "{last_step})."};
constexpr Template kTrainingFell{"run.overfits.training_loss",
                                 "Meanwhile its training loss fell from {before:.4g} to {after:.4g}."};
constexpr Template kLearnsByHeart{"advice.learns_by_heart",
                                  "Stop at step {step}, or train with more data, weight decay or dropout."};

// The median of a rank's last losses of training up to a step; NaN where there are none.
double training_loss(const RunFacts& facts, uint64_t step, int32_t rank) {
  constexpr uint64_t kLosses = 20;
  const Snapshot trace = facts.context.trace.of_rank(rank);
  std::vector<double> losses;
  visit_steps_with_losses(trace, {step + 1 - std::min(step + 1, kLosses), step + 1}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows)
      if (row.loss_known && std::isfinite(row.loss)) losses.push_back(row.loss);
    return true;
  });
  return losses.empty() ? kUnknown : median(std::move(losses));
}

void find_overfitting(const RunFacts& facts, Findings& found) {
  constexpr double kRise = 1.5;  // over its own minimum
  const Snapshot& trace = facts.context.trace;
  const EventRow *lowest = nullptr, *last = nullptr;
  for (const EventRow& event : trace.events()) {
    if (event.metric != MetricKind::evaluation_loss || !facts.context.options.asks_for(event.step)) continue;
    if (last != nullptr && event.rank != last->rank) break;  // one rank's: each may have a test set of its own
    if (lowest == nullptr || event.value < lowest->value) lowest = &event;
    last = &event;
  }
  if (lowest == nullptr || !(lowest->value > 0) || !std::isfinite(last->value) || !(last->value > kRise * lowest->value)) return;
  const double before = training_loss(facts, lowest->step, last->rank), after = training_loss(facts, last->step, last->rank);
  if (!(after < before)) return;
  found.add(Severity::info,
            {kOverfits({{"lowest_step", ordinal(lowest->step)},
                        {"lowest", lowest->value},
                        {"last", last->value},
                        {"last_step", ordinal(last->step)}}),
             kTrainingFell({{"before", before}, {"after", after}})},
            {{facts.selection.key_of_step(lowest->step, lowest->rank), {{lowest->text, lowest->value}}},
             {facts.selection.key_of_step(last->step, last->rank), {{last->text, last->value}}}},
            kLearnsByHeart({{"step", ordinal(lowest->step)}}));
}

}  // namespace

extern constinit const FindingRule run_overfits{
    .code = "run.overfits",
    .part = Part::run,
    .raised =
        "The last test loss is more than 1.5x the lowest one, and the median of the 20 training losses up to it is below that of "
        "the 20 up to the lowest.",
    .meaning = "The run fits its training data ever better, and other data worse.",
    .help = "Stop at the lowest test loss, or use more data, weight decay or dropout.",
    .shown_by = "experiments/failures/overfits.toml",
    .find = find_overfitting,
};

}  // namespace ulpscope::findings
