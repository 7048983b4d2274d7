#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNonfiniteSteps{"loss.nonfinite_steps", "in {nonfinite} of {steps:count step} (first: step {first_step})"};
constexpr Template kLossNonfinite{"run.loss_nonfinite", "The loss was NaN or Inf {steps}."};
constexpr Template kLossNonfiniteAtEnd{"run.loss_nonfinite.in_last_step",
                                       "The loss was NaN or Inf {steps}, the last step among them."};
constexpr Template kOthersRecovered{"run.loss_nonfinite.others_recovered", "After each earlier one it was finite again."};
constexpr Template kLossRecovered{"run.loss_nonfinite.recovered",
                                  "The loss was NaN or Inf {steps}, but is finite in the last step."};
constexpr Template kLossNonfiniteOfRanks{"run.loss_nonfinite.of_ranks",
                                         "The loss of {broken:either rank|ranks} {ranks:commas} was NaN or Inf from step {step} "
                                         "on."};
constexpr Template kLossNonfiniteOfAllRanks{"run.loss_nonfinite.of_all_ranks", "Over all ranks the loss was NaN or Inf {steps}."};
constexpr Template kLookWhereItBegan{"advice.look_where_it_began",
                                     "It began in step {step}: `ulpscope ranges {trace} --step {step}`."};

// The step from which on every step up to this one held something nonfinite and was taken: a loss follows from what the steps
// before it did to the weights.
uint64_t began(const RunFacts& facts, const StepTotals& steps, uint64_t step) {
  std::set<uint64_t> taken;  // of all ranks
  for (const EventRow& event : facts.context.trace.events())
    if (event.kind == EventKind::nonfinite && !is_of_mask(facts, event) && !steps.skipped.contains(event.step))
      taken.insert(event.step);
  while (step > 0 && taken.contains(step - 1)) --step;
  return step;
}

// Where what reached the losses of these steps began, where that is known: the graph has ways to a loss for more than what got
// there. Of that which the run is judged by, as `ulpscope nan` has it, else of what got there last.
std::optional<NonfiniteOrigin> where_began(const RunFacts& facts, uint64_t step) {
  const RangeJudgement& ranges = facts.ranges();
  const NonfiniteBeginning* latest = nullptr;
  for (const NonfiniteBeginning& one : ranges.beginnings()) {
    if (!one.loss || *one.loss > step) continue;
    for (const NonfiniteOrigin& origin : ranges.origins())
      if ((origin.tensor == one.tensor || origin.filled == one.tensor) && origin.position.step <= step) return origin;
    if (latest == nullptr || *one.loss > *latest->loss) latest = &one;
  }
  return latest ? latest->of_loss : std::nullopt;
}

bool has_tensors(const RunFacts& facts, uint64_t step) {
  bool has = false;
  facts.context.trace.visit_steps({step, step + 1}, [&](std::span<const StepRow> rows) {
    has = std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return row.level != RecordLevel::off; });
    return !has;
  });
  return has;
}

void find_loss_nonfinite(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const StepTotals& steps = facts.steps();
  if (steps.nonfinite_losses.empty()) return;
  const uint64_t nonfinite = steps.nonfinite_losses.size(), first = steps.nonfinite_losses.first();
  const bool recovered = !facts.broke();
  // A last step without a loss, as one that an exception ended, is no recovery.
  const bool ends_so = recovered && !steps.last.loss_known && !std::isfinite(steps.last_losses.back());
  // Losses of steps that were skipped long before have nothing to do with those that broke the run.
  const uint64_t from = recovered ? first : steps.nonfinite_losses.first_of_last_bout();
  Extent extent{{}, from};
  for (uint32_t i = 0; i < facts.selection.size(); ++i)
    if (facts.selection.tensor(i).role == Role::loss) extent.tensors.push_back(i);
  const std::optional<NonfiniteOrigin> origin = where_began(facts, from);
  if (origin) extent.origin = origin->tensor;
  extent.steps = nonfinite;
  // Of several ranks perhaps some only.
  const std::vector<int> broken = facts.step_facts.broken_ranks();
  Value::List ranks;
  for (const int rank : broken) ranks.push_back(ordinal(rank));
  const Sentence count = kNonfiniteSteps({{"nonfinite", nonfinite}, {"steps", steps.count}, {"first_step", ordinal(first)}});
  Sentences title;
  if (ends_so) {
    title = kLossNonfinite({{"steps", count}});
  } else if (recovered && steps.nonfinite_losses.contains(steps.last.step)) {
    title = kLossNonfiniteAtEnd({{"steps", count}});
    if (nonfinite > 1) title += kOthersRecovered();
  } else if (recovered) {
    title = kLossRecovered({{"steps", count}});
  } else if (broken.size() == trace.ranks().size()) {
    title = kLossNonfinite({{"steps", count}});
  } else {
    title = {kLossNonfiniteOfRanks({{"broken", broken.size()},
                                    {"ranks", Value::list(std::move(ranks))},
                                    {"step", ordinal(facts.step_facts.broken_from())}}),
             kLossNonfiniteOfAllRanks({{"steps", count}})};
  }
  const uint64_t step = origin ? origin->position.step : began(facts, steps, from);
  const Argument in_step{"step", ordinal(step)};
  found.add(harm_of_nonfinite_losses(steps, facts.broke() || ends_so), std::move(title),
            {{key_of_step(trace, first), {{"steps", count_cell(nonfinite), Unit::count}}}},
            has_tensors(facts, step) ? kLookWhereItBegan({in_step, {"trace", trace_name(trace)}})
                                     : cause_words::kRecordAllSteps({in_step}),
            std::move(extent));
}

}  // namespace

extern constinit const FindingRule run_loss_nonfinite{
    .code = "run.loss_nonfinite",
    .part = Part::run,
    .raised = "The loss was NaN or Inf in some steps.",
    .meaning = "These steps taught nothing, or ruined the weights.",
    .help = "Look at the first tensor of the run that holds NaN or Inf.",
    .picture = Picture::nonfinite_flow,
    .explains = {"scale.collapse", "scale.no_step_taken"},
    .shown_by = "experiments/failures/log_of_zero.toml",
    .find = find_loss_nonfinite,
};

}  // namespace ulpscope::findings
