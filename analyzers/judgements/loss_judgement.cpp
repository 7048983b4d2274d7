#include "ulpscope/analyzers/judgements/loss_judgement.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

// Losses that lie so many times above the first one that no format made them.
constexpr double kGrown = 10;

// The last losses before the first step that held NaN or infinity, skipped or not; fewer than kEndLosses where there are not as
// many, and none where no step held any.
std::vector<StepLoss> last_losses_before_nonfinite(const RunFacts& facts) {
  const uint64_t first = first_nonfinite_step(facts, WhichSteps::all);
  if (first == UINT64_MAX) return {};
  const uint64_t begin = first - std::min<uint64_t>(first, kEndLosses);
  return losses_of(facts, {std::max(facts.context.options.steps.first, begin), first});
}

// The last losses are far above the first one, which no update had changed yet, and of a classifier above guessing too. A peak may
// lie between them.
bool ended_above(const RunFacts& facts) {
  constexpr size_t kFewest = 3;
  constexpr double kAboveAll = 3;  // times all losses of the beginning, as many as those of the end
  const StepTotals& steps = facts.judged_steps();
  const size_t n = std::min<size_t>(kEndLosses, steps.count / 2);
  if (n < kFewest || steps.first_losses.size() < n || !(steps.first.loss > 0)) return false;
  std::vector<double> ends = last_losses(steps, n);
  std::erase_if(ends, [](double loss) { return !std::isfinite(loss); });  // those are no growth, and told by themselves
  if (ends.size() < kFewest) return false;
  const double most = *std::max_element(steps.first_losses.begin(), steps.first_losses.begin() + static_cast<std::ptrdiff_t>(n));
  if (*std::min_element(ends.begin(), ends.end()) > kAboveAll * most) return true;
  const double least = *std::min_element(ends.begin(), ends.end());
  const std::optional<Guessing> guessing = guessing_of(facts.context);
  return least > kGrown * steps.first.loss ||
         (guessing && guessing->loss && least > 2 * std::max(steps.first.loss, *guessing->loss));
}

// Of a run too short for the rest.
bool is_short(const RunFacts& facts) {
  constexpr size_t kFewest = 6;
  const StepTotals& steps = facts.judged_steps();
  return !facts.broke() && steps.count >= kFewest && steps.count < 2 * kEndLosses && steps.last_losses.size() == steps.count;
}

bool comes_down(const RunFacts& facts) {
  if (!is_short(facts)) return false;
  const StepTotals& steps = facts.judged_steps();
  const std::vector<double> all = last_losses(steps, steps.count), ends = last_losses(steps, steps.count / 4);
  return 2 * *std::max_element(ends.begin(), ends.end()) < *std::max_element(all.begin(), all.end());
}

// Of the steps before `until`. Nothing where some of the first losses lie that high, as where a few samples do, or the very last
// ones do not.
std::optional<ScatteredLosses> scattered_above(const RunFacts& facts, uint64_t until) {
  constexpr size_t kFewest = 5, kFewestLast = 2, kLeastSteps = 30;
  const StepTotals& steps = facts.judged_steps();
  const double first = steps.first.loss;
  const auto lies_high = [&](double loss) { return loss > kGrown * first; };
  if (!(first > 0) || std::any_of(steps.first_losses.begin(), steps.first_losses.end(), lies_high)) return std::nullopt;
  const StepRange asked = facts.context.options.steps;
  std::vector<StepLoss> known = losses_of(facts, {asked.first, std::min(until, asked.last)});
  std::erase_if(known, [](const StepLoss& one) { return !std::isfinite(one.loss); });
  if (known.size() < kLeastSteps) return std::nullopt;
  const size_t count = std::min(known.size(), StepTotals::kLastLosses);
  ScatteredLosses found{.steps = count, .first = first, .ends_early = until != UINT64_MAX};
  size_t last = 0;
  for (size_t i = known.size() - count; i < known.size(); ++i) {
    const auto [step, loss] = known[i];
    if (!lies_high(loss)) continue;
    ++found.above;
    last += known.size() - i <= kEndLosses;
    if (loss <= found.highest) continue;
    found.highest = loss;
    found.step = step;
  }
  return found.above >= kFewest && last >= kFewestLast ? std::optional(found) : std::nullopt;
}

}  // namespace

namespace {

constexpr Template kScattered{"loss.scattered",
                              "{above} of the last {losses} losses exceed {times:g}x the first ({first:.4g}), and the highest is "
                              "{highest:.4g} (step {step})"};
constexpr Template kScatteredBefore{"loss.scattered_before_nonfinite",
                                    "{above} of the last {losses} losses before the first NaN or Inf exceed {times:g}x the first "
                                    "({first:.4g}), and the highest is {highest:.4g} (step {step})"};
constexpr Template kRose{"loss.rose", "rose"};
constexpr Template kDidNotFall{"loss.did_not_fall", "went"};
constexpr Template kWentInStep{"loss.went_in_step",
                               "the loss {rose} from {first:.4g} (step {first_step}) to {last:.4g} (step {step})"};
constexpr Template kWent{"loss.went", "the loss {rose} from {first:.4g} (step {first_step}) to {last:.4g}"};
constexpr Template kMedianOver{"loss.median_over", "a median of {last:.4g} over {losses:count step}"};
constexpr Template kOneLoss{"loss.one", "{last:.4g}"};
constexpr Template kWentToMedian{"loss.went_to_median",
                                 "the loss {rose} from {first:.4g} (step {first_step}) to {last:.4g}, the median of its last "
                                 "{losses} values"};
constexpr Template kWentBeforeBreak{"loss.went_before_it_broke",
                                    "the loss {rose} from {first:.4g} (step {first_step}) to {end}, and was NaN or Inf from step "
                                    "{until} on"};
constexpr Template kWentBeforeNonfinite{
    "loss.went_before_nonfinite",
    "the loss {rose} from {first:.4g} (step {first_step}) to {end}, before the first NaN or Inf in "
    "any tensor (step {until})"};

}  // namespace

Sentence ScatteredLosses::text() const {
  return (ends_early ? kScatteredBefore : kScattered)(
      {{"above", above}, {"losses", steps}, {"times", kGrown}, {"first", first}, {"highest", highest}, {"step", ordinal(step)}});
}

Sentence LossChange::text() const {
  if (scattered) return scattered->text();
  const Value from = ordinal(first_step), rose = last > first ? kRose() : kDidNotFall();
  if (step) return kWentInStep({{"rose", rose}, {"first", first}, {"first_step", from}, {"last", last}, {"step", ordinal(*step)}});
  if (until != Until::end) {
    const Sentence end = count == 1 ? kOneLoss({{"last", last}}) : kMedianOver({{"last", last}, {"losses", count}});
    return (until == Until::broke ? kWentBeforeBreak : kWentBeforeNonfinite)(
        {{"rose", rose}, {"first", first}, {"first_step", from}, {"end", end}, {"until", ordinal(until_step)}});
  }
  if (count == 1) return kWent({{"rose", rose}, {"first", first}, {"first_step", from}, {"last", last}});
  return kWentToMedian({{"rose", rose}, {"first", first}, {"first_step", from}, {"last", last}, {"losses", count}});
}

std::vector<StepLoss> losses_of(const RunFacts& facts, StepRange steps) {
  std::vector<StepLoss> losses;
  for (const StepNumbers& one : facts.memory.steps.steps(facts.context))
    if (one.loss_known && steps.contains(one.step)) losses.push_back({one.step, one.loss});
  return losses;
}

bool is_of_mask(const RunFacts& facts, const EventRow& event) {
  return event.tensor >= 0 && facts.selection.contains(static_cast<uint32_t>(event.tensor)) &&
         facts.ranges().is_mask(static_cast<uint32_t>(event.tensor));
}

uint64_t first_nonfinite_step(const RunFacts& facts, WhichSteps steps) {
  uint64_t first = UINT64_MAX;
  bool hides_others = false;  // behind a mask that came first in its step
  for (const EventRow& event : facts.context.trace.events()) {
    const bool is_among = event.step >= facts.context.options.steps.first &&
                          (steps == WhichSteps::all || !facts.steps().skipped.contains(event.step));
    if (event.kind != EventKind::nonfinite || !is_among) continue;
    if (is_of_mask(facts, event))
      hides_others = true;
    else
      first = std::min(first, event.step);
  }
  // Where ops of a step were not recorded, its loss tells.
  const StepSet& losses = facts.steps().nonfinite_losses;
  for (uint64_t step = losses.empty() ? first : losses.first(); step < first && step <= losses.last(); ++step)
    if (losses.contains(step) && (steps == WhichSteps::all || !facts.steps().skipped.contains(step))) first = step;
  if (!hides_others) return first;
  for (const RangeJudgement::Tensor& tensor : facts.ranges().tensors()) {
    const StepSet held = facts.ranges().nonfinite(tensor.index).steps;
    for (uint64_t step = held.empty() ? first : held.first(); step < first && step <= held.last(); ++step)
      if (held.contains(step) && (steps == WhichSteps::all || !facts.steps().skipped.contains(step))) first = step;
  }
  return first;
}

bool stays_above_start(const RunFacts& facts) {
  if (!is_short(facts)) return false;
  const StepTotals& steps = facts.judged_steps();
  const std::vector<double> ends = last_losses(steps, steps.count / 2);
  const std::optional<Guessing> guessing = guessing_of(facts.context);
  const double bound = std::max(steps.first.loss, guessing ? guessing->loss.value_or(steps.first.loss) : steps.first.loss);
  return std::all_of(ends.begin(), ends.end(), [&](double loss) { return std::isfinite(loss) && loss > bound; });
}

bool ended_no_better(const RunFacts& facts) {
  const StepTotals& steps = facts.judged_steps();
  const std::vector<double> ends = last_losses(steps);
  return facts.broke() || ends.empty() || !(median(ends) < steps.first.loss);
}

Severity harm_of_nonfinite_losses(const StepTotals& steps, bool broke) {
  if (broke) return Severity::error;
  return harms_losses(steps) ? Severity::warning : Severity::info;
}

bool optimizes_in_turns(const RunFacts& facts) {
  const Snapshot& trace = facts.context.trace;
  bool updated = false, in_turns = false;
  const uint64_t first = facts.steps().first.step;
  trace.of_rank(trace.ranks().front()).visit_rows_without_histograms({first, first + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const OpInfo& op = trace.ops()[trace.tensors()[row.tensor].op];
      in_turns = in_turns || (updated && op.phase == Phase::backward);
      updated = updated || op.kind == OpKind::update;
    }
    return !in_turns;
  });
  return in_turns;
}

std::optional<LossJudgement> judge_losses(const RunFacts& facts, uint64_t first_nonfinite, uint64_t blind) {
  const StepTotals& steps = facts.judged_steps();
  // The last losses vary from batch to batch: their median, where there are many. The first is what they are compared with.
  std::vector<double> ends = last_losses(steps);
  if (ends.empty() || !std::isfinite(steps.first.loss) || !steps.first.loss_known) return std::nullopt;
  if (ends.size() > 1 && ends.size() == steps.last_losses.size()) ends.erase(ends.begin());
  const double first = steps.first.loss, end = median(ends);
  const std::vector<int> broken = facts.step_facts.broken_ranks();
  const bool broke = std::find(broken.begin(), broken.end(), facts.context.trace.ranks().front()) != broken.end();
  LossJudgement judged{.change = {.first_step = steps.first.step,
                                  .first = first,
                                  .last = end,
                                  .count = ends.size(),
                                  .until = broke ? LossChange::Until::broke : LossChange::Until::end,
                                  .until_step = facts.step_facts.broken_from()},
                       .is_long = steps.count >= 2 * kEndLosses,
                       .no_better = steps.count > 1 && end >= first,
                       .comes_down = comes_down(facts),
                       .grew = false,
                       .grew_to_nonfinite = false,
                       .peaked = steps.peak && first > 0 && steps.peak->loss > kGrown * first && steps.peak->step <= blind &&
                                 steps.peak->step < first_nonfinite && blind != UINT64_MAX,
                       .scattered = scattered_above(facts, first_nonfinite)};
  const bool above_all = judged.is_long && first > 0 && end > 2 * median(steps.first_losses) &&
                         end > *std::max_element(steps.first_losses.begin(), steps.first_losses.end());
  judged.grew = !facts.broke() && first_nonfinite == UINT64_MAX && ((std::isfinite(end) && above_all) || ended_above(facts));
  const std::vector<StepLoss> last = last_losses_before_nonfinite(facts);
  std::vector<double> before;
  for (const StepLoss& one : last)
    if (one.step != steps.first.step || last.size() == 1) before.push_back(one.loss);
  judged.grew_to_nonfinite = last.size() == kEndLosses && first > 0 && median(before) > kGrown * first;
  // One of two models that work against each other may win: its updates say whether it diverged.
  if ((judged.grew || judged.grew_to_nonfinite || judged.peaked || judged.scattered) && optimizes_in_turns(facts)) {
    judged.grew = judged.grew_to_nonfinite = judged.peaked = false;
    judged.scattered.reset();
  }

  LossChange& change = judged.change;
  if (!before.empty() && (!std::isfinite(end) || judged.grew_to_nonfinite)) {
    change.last = median(before);
    change.count = before.size();
    change.until = LossChange::Until::nonfinite;
    change.until_step = first_nonfinite_step(facts, WhichSteps::all);
  }
  if (judged.peaked) {
    change.last = steps.peak->loss;
    change.step = steps.peak->step;
  } else if (judged.scattered && !judged.grew && !judged.grew_to_nonfinite) {
    change.last = judged.scattered->highest;
    change.step = judged.scattered->step;
    change.scattered = judged.scattered;
  }
  return judged;
}

}  // namespace ulpscope
