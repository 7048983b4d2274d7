#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/guesses.h"
#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/nonfinite_cause.h"
#include "ulpscope/analyzers/output_slots.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/silent_outputs.h"
#include "ulpscope/analyzers/trend.h"
#include "ulpscope/analyzers/update_judgement.h"
#include "ulpscope/analyzers/what_if.h"

namespace ulpscope::findings {

namespace {

Snapshot first_rank(const RunFacts& facts) { return facts.context.trace.of_rank(facts.context.trace.ranks().front()); }

// Of steps that were taken; in a skipped one that is how a scaler finds its level.
uint64_t first_nonfinite_step(const RunFacts& facts) {
  uint64_t first = UINT64_MAX;
  for (const EventRow& event : facts.context.trace.events()) {
    if (event.kind == EventKind::nonfinite && event.step >= facts.context.options.steps.first &&
        !facts.steps().skipped.contains(event.step))
      first = std::min(first, event.step);
  }
  return first;
}

// The last losses before the first step that held NaN or infinity, skipped or not; fewer than kEndLosses where there are not as
// many, and none where no step held any. Of several ranks, the losses of the first.
std::vector<double> last_losses_before_nonfinite(const RunFacts& facts) {
  const StepRange asked = facts.context.options.steps;
  uint64_t first = UINT64_MAX;
  for (const EventRow& event : facts.context.trace.events())
    if (event.kind == EventKind::nonfinite && event.step >= asked.first) first = std::min(first, event.step);
  std::vector<double> losses;
  if (first == UINT64_MAX) return losses;
  const uint64_t begin = first - std::min<uint64_t>(first, kEndLosses);
  for (const StepLoss& one : known_losses(first_rank(facts), {std::max(asked.first, begin), first})) losses.push_back(one.loss);
  return losses;
}

// The weights, which whatever broke was computed from.
Extent all_weights(const RunFacts& facts, uint64_t first_step) {
  Extent extent{{}, first_step};
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const Role role = facts.selection.tensor(i).role;
    if (role == Role::weight || role == Role::master_weight) extent.tensors.push_back(i);
  }
  return extent;
}

// Losses that lie so many times above the first one that no format made them.
constexpr double kGrown = 10;

// Losses that are far above the first one among others that are near zero, as those of a classifier that is sure of whatever it
// says: a median does not tell of them.
struct Scattered {
  uint64_t above = 0, steps = 0;
  double first = 0, highest = 0;
  uint64_t step = 0;        // of the highest
  bool ends_early = false;  // something was NaN or infinite behind them

  std::string text() const {
    return fmt::format("{} of the last {} losses{} are more than {:g} times the first one, {:.4g}, up to {:.4g} in step {}", above,
                       steps, ends_early ? " before anything was NaN or infinite" : "", kGrown, first, highest, step);
  }
};
// A change of the loss, and where its end was taken.
struct LossChange {
  uint64_t first_step;
  double first, last;
  size_t count;  // losses that `last` is the median of
  const char* until;
  std::optional<uint64_t> step;  // of `last`, where that is one loss on the way
  std::optional<Scattered> scattered = {};

  std::string text() const {
    if (scattered) return scattered->text();
    return fmt::format("the loss went from {:.4g} in step {} to {:.4g}{}", first, first_step, last,
                       step         ? fmt::format(" in step {}", *step)
                       : count == 1 ? ""
                                    : fmt::format(", the median of the last {} losses{}", count, until));
  }
};

// Adam keeps the second moments of the weight in a narrow type that made zeros of some.
bool flushed_second_moments(const RunFacts& facts, uint32_t weight) {
  const TensorInfo& made = facts.selection.tensor(weight);
  if (facts.selection.op(weight).function != OpFunction::adam_update) return false;
  const std::span<const uint32_t> moments = facts.context.graph.made_by(made.op, kSecondMomentSlot);
  return std::any_of(moments.begin(), moments.end(), [&](uint32_t i) {
    const auto* const found = facts.ranges().find(i);
    if (found == nullptr || !is_narrow(facts.selection.tensor(i).dtype)) return false;
    const RoundingBounds& seen = found->judged.totals.seen;
    return share(seen.flushed.lower, seen.base) > facts.context.options.flushed_limit;
  });
}

// `is_sure`: that the run did not only begin so.
void add_large_update(const RunFacts& facts, const UpdateRatio& ratio, bool is_sure, const std::string& losses, Findings& found) {
  const TensorInfo& weight = facts.selection.tensor(ratio.tensor);
  RowKey key = facts.selection.key(ratio.tensor);
  key.step = ratio.step;
  Advice masters;
  masters.text = ", or keep FP32 master weights" +
                 in_brackets({masters.set(facts.context.settings.switched(SettingKind::master_weights, true))}) + ".";
  Advice help = shorten_updates(facts, ratio.tensor, ratio.step) +
                (is_narrow(weight.dtype) ? masters : Advice(is_sure ? fmt::format("{}.", kNoFormatHelps) : "."));
  if (flushed_second_moments(facts, ratio.tensor)) {
    help = Advice();
    help.text = fmt::format(
        "Second moments were flushed to zero in {}, and an update that is divided by eps alone may have "
        "any length: keep FP32 master weights, whose moments are FP32",
        info(weight.dtype).format->name);
    help += in_brackets({help.set(facts.context.settings.switched(SettingKind::master_weights, true))}) + ".";
  }
  found.add(is_sure ? Severity::error : Severity::warning,
            fmt::format("The run {}: the update of step {} was {:.3g} times as large as {}, before anything overflowed in a step "
                        "that was taken{}.",
                        is_sure ? "diverged" : "may diverge", ratio.step, ratio.ratio, facts.selection.parameter_name(ratio.tensor),
                        losses),
            {{key, {{"update_over_weight", ratio.ratio}}}}, std::move(help), {{ratio.tensor}, ratio.step});
}

// The last losses are far above the first one, which no update had changed yet, and of a classifier above guessing too. A peak may
// lie between them.
bool ended_above(const RunFacts& facts, double grown) {
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
  return least > grown * steps.first.loss ||
         (guessing && guessing->loss && least > 2 * std::max(steps.first.loss, *guessing->loss));
}

// Of a run too short for the rest: its last losses are below half of the highest one, and it may yet train.
bool comes_down(const RunFacts& facts) {
  constexpr size_t kFewest = 6;
  const StepTotals& steps = facts.judged_steps();
  if (facts.broke() || steps.count < kFewest || steps.count >= 2 * kEndLosses || steps.last_losses.size() != steps.count)
    return false;
  const std::vector<double> all = last_losses(steps, steps.count), ends = last_losses(steps, steps.count / 4);
  return 2 * *std::max_element(ends.begin(), ends.end()) < *std::max_element(all.begin(), all.end());
}

// Of a run too short for the rest: each loss of its later half is above its first one, and of a classifier above guessing, and some
// update was so large a part of its weight as healthy runs have only at their first steps.
bool rises_from_the_start(const RunFacts& facts) {
  constexpr size_t kFewest = 6;
  constexpr double kLargePart = 0.25;
  const StepTotals& steps = facts.judged_steps();
  if (facts.broke() || steps.count < kFewest || steps.count >= 2 * kEndLosses || steps.last_losses.size() != steps.count)
    return false;
  const std::vector<double> ends = last_losses(steps, steps.count / 2);
  const std::optional<Guessing> guessing = guessing_of(facts.context);
  const double bound = std::max(steps.first.loss, guessing ? guessing->loss.value_or(steps.first.loss) : steps.first.loss);
  const auto& longest = facts.updates().whole().longest;
  return longest && longest->ratio > kLargePart &&
         std::all_of(ends.begin(), ends.end(), [&](double loss) { return std::isfinite(loss) && loss > bound; });
}

// What came of an update as large as its weight before anything was NaN or infinite, of the first rank.
struct ThrownUp {
  double highest = 0;  // loss from the update on
  uint64_t step = 0;
  uint64_t above = 0, steps = 0;  // losses above the first one, and all of them
};
ThrownUp thrown_up(const RunFacts& facts, uint64_t from) {
  ThrownUp found;
  const double first = facts.judged_steps().first.loss;
  const uint64_t last = std::min(facts.context.options.steps.last, first_nonfinite_step(facts));
  for (const auto& [step, loss] : known_losses(first_rank(facts), {from + 1, last})) {
    if (!std::isfinite(loss)) continue;
    ++found.steps;
    found.above += loss > first;
    if (loss <= found.highest) continue;
    found.highest = loss;
    found.step = step;
  }
  return found;
}

// The run learned all the same, and may have ended better without.
void add_thrown_up(const RunFacts& facts, const UpdateRatio& ratio, Findings& found) {
  constexpr double kThrown = 2;  // times the first loss: batches vary by less
  const double first = facts.judged_steps().first.loss;
  const ThrownUp thrown = thrown_up(facts, ratio.step);
  if (!(first > 0) || !(thrown.highest > kThrown * first)) return;
  RowKey key = facts.selection.key(ratio.tensor);
  key.step = ratio.step;
  found.add(Severity::warning,
            fmt::format("Updates were too long: that of step {} was {:.3g} times as large as {}, and the loss rose from {:.4g} "
                        "to {:.4g} in step {}; it was above the first one in {} of {} steps.",
                        ratio.step, ratio.ratio, facts.selection.parameter_name(ratio.tensor), first, thrown.highest, thrown.step,
                        thrown.above, thrown.steps),
            {{key, {{"update_over_weight", ratio.ratio}}}}, shorten_updates(facts, ratio.tensor, ratio.step) + ".",
            {{ratio.tensor}, ratio.step});
}

// A rounding to a narrow type made the zero that was divided by, or taken the logarithm of, and FP32 keeps it.
bool rounding_broke_it(const RunFacts& facts) {
  return std::any_of(facts.ranges().origins().begin(), facts.ranges().origins().end(),
                     [&](const NonfiniteOrigin& origin) { return explain(facts, origin).fp32_keeps; });
}

// From which step on the loss saw nothing of the batch, because activations gave nothing but zeros: where a loss ends then says
// nothing of how it was before.
uint64_t went_blind(const RunFacts& facts) {
  if (!facts.silent().loss_sees_nothing) return UINT64_MAX;
  return silent_suspects(facts, facts.silent().dead).extent().first_step.value_or(UINT64_MAX);
}

// Of the steps before `until`, of the first rank. Nothing where some of the first losses lie that high, as where a few samples do,
// or the very last ones do not.
std::optional<Scattered> scattered_above(const RunFacts& facts, uint64_t until) {
  constexpr size_t kFewest = 5, kFewestLast = 2, kLeastSteps = 30;
  const StepTotals& steps = facts.judged_steps();
  const double first = steps.first.loss;
  const auto lies_high = [&](double loss) { return loss > kGrown * first; };
  if (!(first > 0) || std::any_of(steps.first_losses.begin(), steps.first_losses.end(), lies_high)) return std::nullopt;
  const StepRange asked = facts.context.options.steps;
  std::vector<StepLoss> known = known_losses(first_rank(facts), {asked.first, std::min(until, asked.last)});
  std::erase_if(known, [](const StepLoss& one) { return !std::isfinite(one.loss); });
  if (known.size() < kLeastSteps) return std::nullopt;
  const size_t count = std::min(known.size(), StepTotals::kLastLosses);
  Scattered found{.steps = count, .first = first, .ends_early = until != UINT64_MAX};
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

void find_divergence(const RunFacts& facts, Findings& found) {
  if (!facts.sees_updates()) return;
  // So soon after an update that was too large a run breaks for it.
  constexpr uint64_t kSoon = 10;
  const StepTotals& steps = facts.judged_steps();
  const RunUpdates& all = facts.updates().whole();
  const uint64_t broke = facts.step_facts.broken_from();
  const uint64_t first_nonfinite = first_nonfinite_step(facts);
  // The last losses vary from batch to batch: their median, where there are many.
  const std::vector<double> ends = last_losses(steps);
  if (ends.empty() || !std::isfinite(steps.first.loss) || !steps.first.loss_known) return;
  LossChange losses{steps.first.step, steps.first.loss, median(ends), ends.size(), facts.broke() ? " before it broke" : "", {}};
  const bool no_better = steps.count > 1 && losses.last >= losses.first;
  const bool falls = comes_down(facts);
  const bool is_long = steps.count >= 2 * kEndLosses;  // a few losses vary
  const bool above_all = steps.count >= 2 * kEndLosses && losses.first > 0 && losses.last > 2 * median(steps.first_losses) &&
                         losses.last > *std::max_element(steps.first_losses.begin(), steps.first_losses.end());
  const bool grew =
      !facts.broke() && first_nonfinite == UINT64_MAX && ((std::isfinite(losses.last) && above_all) || ended_above(facts, kGrown));
  const std::vector<double> before = last_losses_before_nonfinite(facts);
  const bool grew_before = before.size() == kEndLosses && losses.first > 0 && median(before) > kGrown * losses.first;
  if (!before.empty() && (!std::isfinite(losses.last) || grew_before)) {
    losses.last = median(before);
    losses.count = before.size();
    losses.until = " before anything was NaN or infinite";
  }
  const uint64_t blind = went_blind(facts);
  const bool peaked = steps.peak && losses.first > 0 && steps.peak->loss > kGrown * losses.first && steps.peak->step <= blind &&
                      steps.peak->step < first_nonfinite && blind != UINT64_MAX;
  if (peaked) {
    losses.last = steps.peak->loss;
    losses.step = steps.peak->step;
  }
  // Updates as large as the weights are no harm where the loss went down all the same.
  const bool large = all.first_large && all.first_large->step < first_nonfinite;
  const bool broke_soon = large && all.has_large() && facts.broke() && broke - all.first_large->step <= kSoon;
  const bool blinded = large && blind != UINT64_MAX && blind > all.first_large->step && blind - all.first_large->step <= kSoon;
  const std::optional<Scattered> scattered = scattered_above(facts, first_nonfinite);
  if (facts.leap()) return;  // one step did it, and is told as such
  if (broke_soon && !grew_before && !peaked && !scattered && rounding_broke_it(facts)) return;  // told as such
  const bool is_sure = broke_soon || grew || grew_before || peaked || scattered || blinded || (no_better && is_long);
  if (scattered && !grew && !grew_before && !peaked) {
    losses.last = scattered->highest;
    losses.step = scattered->step;
    losses.scattered = scattered;
  }
  if (large && (is_sure || (no_better && all.has_large() && !falls)))
    add_large_update(facts, *all.first_large, is_sure || facts.broke(),
                     no_better || peaked || scattered ? ", and " + losses.text() : "", found);
  else if (first_nonfinite == UINT64_MAX && losses.last > losses.first && !grew && !peaked && !falls && rises_from_the_start(facts))
    found.add(Severity::warning,
              fmt::format("The run diverges: {}. Updates were up to {:.3g} times as large as the weights that they changed.",
                          losses.text(), all.longest->ratio),
              {{key_of_step(facts.context.trace, steps.last.step), {{"loss", losses.last}, {"first_loss", losses.first}}}},
              shorten_updates(facts, std::nullopt, steps.last.step) + ".");
  else if (grew || grew_before || peaked || scattered)
    found.add(
        Severity::error,
        fmt::format("The run diverged: {}{}.", losses.text(),
                    grew_before || (scattered && scattered->ends_early) ? "" : ", and nothing overflowed in a step that was taken"),
        {{key_of_step(facts.context.trace, losses.step.value_or(steps.last.step)),
          {{"loss", losses.last}, {"first_loss", losses.first}}}},
        shorten_updates(facts, std::nullopt, losses.step.value_or(steps.last.step)) + ".",
        grew_before || peaked || scattered ? all_weights(facts, losses.first_step + 1) : Extent());
  else if (large && all.has_large())
    add_thrown_up(facts, *all.first_large, found);
}

}  // namespace

extern constinit const FindingRule run_diverged{
    .code = "run.diverged",
    .part = Part::run,
    .raised =
        "An update was larger than the weights that it changed before anything overflowed, and the loss did not come "
        "down or broke soon, or activations died soon; or the loss grew to the end of the run without an overflow, or ended far "
        "above the first one, or scattered: a tenth of its last 50 losses were more than ten times the first one, two of the last "
        "ten "
        "and none of the first ten among them; or was ten times the first one before anything was NaN or infinite or before "
        "activations that died hid the batch "
        "from it. Of a run of fewer than 20 steps that did not break, updates alone beside a loss that did not come down are a "
        "warning, as are losses of its later half that are all above the first one and above guessing, with an update larger than "
        "a "
        "quarter of the weights that it changed; neither where its last losses are below half of the highest. "
        "A warning too where the loss came down after an update larger than its weight had thrown it above twice the first one.",
    .meaning = "The optimizer's steps are too long. FP32 and BF16 would have ended as badly, only later.",
    .help = "Lower the learning rate, warm it up, or clip the norm of the gradients.",
    .explains = kOfNonfinite + Codes{"model.values_grow", "scale.no_scale_fits", "scale.over_scaled", "range.values_flushed",
                                     "range.gradients_flushed", "model.dead_output", "model.gradients_fall", "updates.lost"},
    .shown_by = "experiments/failures/diverges_fp32.toml",
    .find = find_divergence,
};

}  // namespace ulpscope::findings
