#include "ulpscope/analyzers/findings/checked.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

namespace {

constexpr Template kChecked{"checked.matters", "{matters:commas}."};
constexpr Template kNotChecked{"checked.not", "Not checked: {matters:commas}."};
constexpr Template kLosses{"checked.losses", "losses"};
constexpr Template kNoLoss{"checked.no_loss", "the loss (the trace has none)"};
constexpr Template kNonfinite{"checked.nonfinite", "NaN and Inf"};
constexpr Template kRanges{"checked.ranges", "underflow and overflow"};
constexpr Template kNoRows{"checked.no_rows", "values (the trace has no tensor rows)"};
constexpr Template kStepsLeftOut{"checked.steps_left_out", "tensors of {left_out} of {steps:count step} (not recorded)"};
constexpr Template kUnseen{"checked.unseen_roundings", "{unseen} of {roundings} roundings (not counted by the producer)"};
constexpr Template kScale{"checked.loss_scale", "loss scale"};
constexpr Template kUpdates{"checked.updates", "lost updates"};
constexpr Template kNoUpdates{"checked.no_updates", "lost updates (no update was recorded)"};
constexpr Template kNoUpdatesBeforeBreak{"checked.no_updates_before_break",
                                         "lost updates (no update was recorded before the run broke)"};
constexpr Template kSums{"checked.sums", "rounding error of sums"};

}  // namespace

Sentences what_was_checked(const RunFacts& facts, std::span<const Part> parts) {
  const auto has = [&](Part part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  Value::List seen, unseen;
  if (has(Part::run)) {
    const std::vector<StepNumbers>& steps = facts.memory.steps.steps(facts.context);
    const bool knows = std::any_of(steps.begin(), steps.end(), [](const StepNumbers& one) { return one.loss_known; }) ||
                       knows_a_loss(facts.context.trace);
    (knows ? seen : unseen).push_back((knows ? kLosses : kNoLoss)());
  }
  if (has(Part::ranges)) {
    uint64_t counted = 0, uncounted = 0;
    for (const RangeJudgement::Tensor& tensor : facts.ranges().tensors()) {
      counted += tensor.judged.totals.rows_seen;
      uncounted += tensor.judged.totals.rows_unseen;
    }
    if (facts.ranges().tensors().empty()) {
      unseen.push_back(kNoRows());
    } else {
      seen.push_back(kNonfinite());
      if (counted > 0 || uncounted == 0) seen.push_back(kRanges());
    }
    const StepTotals& steps = facts.steps();
    if (steps.with_ops < steps.count)
      unseen.push_back(kStepsLeftOut({{"left_out", steps.count - steps.with_ops}, {"steps", steps.count}}));
    if (uncounted > 0) unseen.push_back(kUnseen({{"unseen", uncounted}, {"roundings", counted + uncounted}}));
  }
  if (has(Part::scale) && facts.scale().scaling == LossScaling::scaled) seen.push_back(kScale());
  if (has(Part::updates)) {
    const bool any = !facts.updates().weights().empty();
    (any ? seen : unseen).push_back((any ? kUpdates : facts.broke() ? kNoUpdatesBeforeBreak : kNoUpdates)());
  }
  if (has(Part::ranges)) unseen.push_back(kSums());
  Sentences checked;
  if (!seen.empty()) checked += kChecked({{"matters", Value::list(std::move(seen))}});
  if (!unseen.empty()) checked += kNotChecked({{"matters", Value::list(std::move(unseen))}});
  return checked;
}

}  // namespace ulpscope
