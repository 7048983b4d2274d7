#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/analyzers/totals/what_if.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUpdateDiverged{
    "run.diverged.update",
    "The run diverged at step {step}{precision}: the update of `{parameter}` was {ratio:.4g}x the weight's norm."};
constexpr Template kUpdateMayDiverge{
    "run.diverged.update_may",
    "The run may diverge: at step {step} the update of `{parameter}` was {ratio:.4g}x the weight's norm."};
constexpr Template kNothingBefore{"run.diverged.nothing_before", "No NaN or Inf came before it in a step that was taken."};
constexpr Template kThenLosses{"run.diverged.then", "Then {change}."};
constexpr Template kThrownUp{
    "run.diverged.thrown_up",
    "The update of step {step} was too long, {ratio:.4g}x the norm of `{parameter}`, and the loss rose from {first:.4g} to "
    "{highest:.4g}."};
constexpr Template kPeaked{
    "run.diverged.thrown_up.peak",
    "It peaked in step {highest_step}, and exceeded its first value in {above} of {steps:count later step}."};
constexpr Template kLossesDiverged{"run.diverged", "The run diverged: {change}."};
constexpr Template kNothingOverflowed{"run.diverged.without_overflow", "No step that was taken held NaN or Inf."};
constexpr Template kLossesDiverge{"run.diverged.from_the_start", "The run diverges: {change}."};
constexpr Template kUpdatesUpTo{"run.diverged.updates_up_to", "Updates reached {ratio:.4g}x the norm of their weight."};
constexpr Template kShorterUpdates{"advice.shorter_updates", "{said}."};
constexpr Template kShorterOrMasters{"advice.shorter_updates_or_master_weights",
                                     "{said}, or use FP32 master weights{masters:brackets}."};
constexpr Template kMomentsInFp32{"advice.moments_in_fp32", "Use FP32 master weights, whose moments are FP32{masters:brackets}."};
constexpr Template kMomentsFlushed{"run.diverged.moments_flushed",
                                   "Adam's second moments underflow to 0 in {format}; an update divided by eps alone may have any "
                                   "length."};

// The weights, which whatever broke was computed from.
Extent all_weights(const RunFacts& facts, uint64_t first_step) {
  Extent extent{{}, first_step};
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const Role role = facts.selection.tensor(i).role;
    if (role == Role::weight || role == Role::master_weight) extent.tensors.push_back(i);
  }
  return extent;
}

// Adam keeps the second moments of the weight in a narrow type that made zeros of some.
bool flushed_second_moments(const RunFacts& facts, uint32_t weight) {
  const TensorInfo& made = facts.selection.tensor(weight);
  const auto slot = slot_of(facts.selection.op(weight).function, Meaning::second_moment);
  if (!slot) return false;
  const std::span<const uint32_t> moments = facts.context.graph.made_by(made.op, *slot);
  return std::any_of(moments.begin(), moments.end(), [&](uint32_t i) {
    const auto* const found = facts.ranges().find(i);
    if (found == nullptr || !is_narrow(facts.selection.tensor(i).dtype)) return false;
    const RoundingBounds& seen = found->judged.totals.seen;
    return share(seen.flushed.lower, seen.base) > facts.context.options.flushed_limit;
  });
}

Advice shorter_updates(const RunFacts& facts, std::optional<uint32_t> weight, uint64_t step) {
  Advice advice = shorten_updates(facts, weight, step);
  advice.text.begin_with(kShorterUpdates);
  return advice;
}

// `is_sure`: that the run did not only begin so. `losses`: what became of them, or nothing.
// `leads`: it may be behind what was NaN or infinite.
void add_large_update(const RunFacts& facts, const UpdateRatio& ratio, bool is_sure, const Sentence& losses, bool leads,
                      Findings& found) {
  const TensorInfo& weight = facts.selection.tensor(ratio.tensor);
  RowKey key = facts.selection.key(ratio.tensor);
  key.step = ratio.step;
  const SettingMention masters = facts.context.settings.switched(SettingKind::master_weights, true);
  const bool moments_flushed = flushed_second_moments(facts, ratio.tensor);
  Advice help;
  Value precision;
  if (moments_flushed) {
    help.text = kMomentsInFp32({{"masters", help.set(masters)}});
  } else if (is_narrow(weight.dtype)) {
    help = shorten_updates(facts, ratio.tensor, ratio.step);
    help.text.begin_with(kShorterOrMasters, {{"masters", help.set(masters)}});
  } else {
    help = shorter_updates(facts, ratio.tensor, ratio.step);
    if (is_sure) precision = kNoFormatHelps();
  }
  const Value step = ordinal(ratio.step), parameter = parameter_name(facts.selection, ratio.tensor);
  Sentences title =
      is_sure ? kUpdateDiverged({{"step", step}, {"precision", precision}, {"parameter", parameter}, {"ratio", ratio.ratio}})
              : kUpdateMayDiverge({{"step", step}, {"parameter", parameter}, {"ratio", ratio.ratio}});
  title += kNothingBefore();
  if (!losses.empty()) title += kThenLosses({{"change", losses}});
  if (moments_flushed) title += kMomentsFlushed({{"format", format_name(*info(weight.dtype).format)}});
  found.add(is_sure ? Severity::error : Severity::warning, std::move(title), {{key, {{"update_over_weight", ratio.ratio}}}},
            std::move(help), leads ? Extent{{ratio.tensor}, ratio.step} : Extent{{}, ratio.step});
}

// Losses that stay above the first one, beside an update that was so large a part of its weight as healthy runs have only at their
// first steps.
bool rises_from_the_start(const RunFacts& facts) {
  constexpr double kLargePart = 0.25;
  const auto& longest = facts.updates().whole().longest;
  return longest && longest->ratio > kLargePart && stays_above_start(facts);
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
  const uint64_t last = std::min(facts.context.options.steps.last, first_nonfinite_step(facts, WhichSteps::taken));
  for (const auto& [step, loss] : losses_of(facts, {from + 1, last})) {
    if (!std::isfinite(loss)) continue;
    ++found.steps;
    found.above += loss > first;
    if (loss <= found.highest) continue;
    found.highest = loss;
    found.step = step;
  }
  return found;
}

// The update did what it should: two losses or more followed, all below that of its own step, and the last below half of it.
bool came_down_after(const RunFacts& facts, uint64_t update) {
  const std::vector<StepLoss> losses = losses_of(facts, {update, facts.step_facts.broken_from()});
  if (losses.size() < 3 || losses.front().step != update) return false;
  if (!(losses.back().loss < 0.5 * losses.front().loss)) return false;
  return std::all_of(losses.begin() + 1, losses.end(), [&](const StepLoss& later) { return later.loss < losses.front().loss; });
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
            {kThrownUp({{"step", ordinal(ratio.step)},
                        {"ratio", ratio.ratio},
                        {"parameter", parameter_name(facts.selection, ratio.tensor)},
                        {"first", first},
                        {"highest", thrown.highest}}),
             kPeaked({{"highest_step", ordinal(thrown.step)}, {"above", thrown.above}, {"steps", thrown.steps}})},
            {{key, {{"update_over_weight", ratio.ratio}}}}, shorter_updates(facts, ratio.tensor, ratio.step),
            {{ratio.tensor}, ratio.step});
}

// A rounding to a narrow type made the zero that was divided by, or taken the logarithm of, and FP32 keeps it.
bool rounding_broke_it(const RunFacts& facts) {
  return std::any_of(facts.ranges().origins().begin(), facts.ranges().origins().end(),
                     [&](const NonfiniteOrigin& origin) { return explain(facts, origin).fp32_keeps; });
}

// A derivative that is infinite at a value which the forward pass may hold, as that of a root at 0: it waits for that value however
// short the updates are.
const NonfiniteOrigin* origin_in_derivative(const RunFacts& facts) {
  constexpr std::array kAtEdges{NonfiniteCause::division_by_zero, NonfiniteCause::zero_over_zero,
                                NonfiniteCause::zero_times_infinity, NonfiniteCause::power_domain};
  const auto is_it = [&](const NonfiniteOrigin& origin) {
    if (facts.selection.op(origin.tensor).phase != Phase::backward) return false;
    return std::find(kAtEdges.begin(), kAtEdges.end(), explain(facts, origin).cause) != kAtEdges.end();
  };
  const std::vector<NonfiniteOrigin>& origins = facts.ranges().origins();
  const auto found = std::find_if(origins.begin(), origins.end(), is_it);
  return found == origins.end() ? nullptr : &*found;
}

// The run broke with it, or the scaler skipped most of the steps from there on.
bool ended(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const uint64_t step = origin.position.step;
  if (facts.broke()) return step <= facts.step_facts.broken_from();
  return 2 * facts.steps().skipped.size() > facts.steps().last.step - step;
}

// The losses up to that step, which it does not change yet, were no worse than the first one.
bool had_not_risen(const RunFacts& facts, uint64_t step) {
  std::vector<double> losses;
  for (const StepLoss& one : losses_of(facts, {facts.context.options.steps.first, step + 1}))
    if (std::isfinite(one.loss)) losses.push_back(one.loss);
  if (losses.empty()) return false;
  const double first = losses.front();
  losses.erase(losses.begin(), losses.end() - static_cast<std::ptrdiff_t>(std::min(losses.size(), kEndLosses)));
  return median(losses) <= first;
}

// From which step on the loss saw nothing of the batch, because activations gave nothing but zeros: where a loss ends then says
// nothing of how it was before.
uint64_t went_blind(const RunFacts& facts) {
  if (!facts.silent().loss_sees_nothing) return UINT64_MAX;
  return silent_suspects(facts, facts.silent().dead).extent().first_step.value_or(UINT64_MAX);
}

void find_divergence(const RunFacts& facts, Findings& found) {
  if (!facts.sees_updates() || facts.leap()) return;  // one step did it, and is told as such
  // So soon after an update that was too large a run breaks for it.
  constexpr uint64_t kSoon = 10;
  const uint64_t first_nonfinite = first_nonfinite_step(facts, WhichSteps::taken), blind = went_blind(facts);
  const std::optional<LossJudgement> judged = judge_losses(facts, first_nonfinite, blind);
  if (!judged) return;
  const LossChange& losses = judged->change;
  const StepTotals& steps = facts.judged_steps();
  const RunUpdates& all = facts.updates().whole();
  // Updates as large as the weights are no harm where the loss went down all the same.
  const bool large = all.first_large && all.first_large->step < first_nonfinite;
  const bool broke_soon =
      large && all.has_large() && facts.broke() && facts.step_facts.broken_from() - all.first_large->step <= kSoon;
  const bool blinded = large && blind != UINT64_MAX && blind > all.first_large->step && blind - all.first_large->step <= kSoon;
  const bool rose_by_itself = judged->grew_to_nonfinite || judged->peaked || judged->scattered;
  // The rounding or the op that broke it is told by itself.
  const NonfiniteOrigin* const derivative = rose_by_itself ? nullptr : origin_in_derivative(facts);
  const bool is_of_derivative = derivative != nullptr && derivative->position.step < blind && ended(facts, *derivative);
  if (is_of_derivative && had_not_risen(facts, derivative->position.step)) return;
  if (broke_soon && !rose_by_itself && (rounding_broke_it(facts) || came_down_after(facts, all.first_large->step))) return;
  const bool is_sure = broke_soon || judged->rose() || blinded || (judged->no_better && judged->is_long);
  if (large && (is_sure || (judged->no_better && all.has_large() && !judged->comes_down))) {
    add_large_update(facts, *all.first_large, is_sure || facts.broke(),
                     judged->no_better || judged->peaked || judged->scattered ? losses.text() : Sentence(), !is_of_derivative,
                     found);
  } else if (judged->rose()) {
    Sentences title = kLossesDiverged({{"change", losses.text()}});
    if (first_nonfinite == UINT64_MAX) title += kNothingOverflowed();
    found.add(Severity::error, std::move(title),
              {{key_of_step(facts.context.trace, losses.step.value_or(steps.last.step)),
                {{"loss", losses.last}, {"first_loss", losses.first}}}},
              shorter_updates(facts, std::nullopt, losses.step.value_or(steps.last.step)),
              rose_by_itself ? all_weights(facts, losses.first_step + 1) : Extent());
  } else if (first_nonfinite == UINT64_MAX && losses.last > losses.first && !judged->comes_down && rises_from_the_start(facts)) {
    found.add(Severity::warning, {kLossesDiverge({{"change", losses.text()}}), kUpdatesUpTo({{"ratio", all.longest->ratio}})},
              {{key_of_step(facts.context.trace, steps.last.step), {{"loss", losses.last}, {"first_loss", losses.first}}}},
              shorter_updates(facts, std::nullopt, steps.last.step));
  } else if (large && all.has_large()) {
    add_thrown_up(facts, *all.first_large, found);
  }
}

}  // namespace

extern constinit const FindingRule run_diverged{
    .code = "run.diverged",
    .part = Part::run,
    .raised =
        "An update exceeded the norm of its weight before anything overflowed, and the loss did not come down, became NaN or Inf "
        "soon without having fallen to less than half, or activations died soon; it is no cause of a derivative that was infinite "
        "in "
        "a backward pass, and not raised where the losses had not risen until one ended the run. Or the loss grew to the end of "
        "the run without an "
        "overflow, ended far above the first one, or was 10x the first one before anything was NaN or Inf or activations died. Or "
        "it scattered: a tenth of its last 50 "
        "values exceed 10x the first one, two of the last ten and none of the first ten among them. Of a run of fewer than 20 "
        "steps that did not break, it is a warning where such an update stands beside a loss that did not come down, or where all "
        "losses of the later half exceed the first one and guessing, and an update exceeds a quarter of its weight's norm; "
        "neither where the last losses are below half of the highest. A warning too where the loss came down in the end after such "
        "an update had taken it above twice the first one.",
    .meaning = "The optimizer's steps are too long. Precision is not the cause.",
    .help = "Lower the learning rate, warm it up, or clip gradients.",
    .explains = kOfNonfinite + Codes{"model.values_grow", "scale.no_scale_fits", "scale.over_scaled", "range.values_flushed",
                                     "range.gradients_flushed", "model.dead_output", "model.gradients_fall", "updates.lost"},
    .shown_by = "experiments/failures/diverges_fp32.toml",
    .find = find_divergence,
};

}  // namespace ulpscope::findings
