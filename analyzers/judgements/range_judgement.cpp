#include "ulpscope/analyzers/judgements/range_judgement.h"

#include <algorithm>
#include <set>

#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/softmax_masks.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/range_facts.h"

namespace ulpscope {

namespace {

// Values of the forward pass have no loss scale in them, so that no scale that a scaler comes to mends them: two steps are no
// chance.
constexpr uint64_t kFewestSkipped = 2;

}  // namespace

RangeJudgement::RangeJudgement(const AnalysisContext& context, const StepFacts& steps, const RangeFacts& facts,
                               FollowedBeginnings& followed)
    : context_(context),
      followed_(followed),
      judged_(facts.ranges().judged(judged_room_)),
      broken_(facts.ranges().broken(broken_room_)) {
  static const TensorRanges kNone;
  for (uint32_t i = 0; i < context.selection.size(); ++i) {
    const TensorRanges *const judged = judged_.tensors.find(i), *const broken = broken_.tensors.find(i);
    if (judged || broken) tensors_.push_back({i, judged ? *judged : kNone, broken});
  }
  is_mask_ = find_masks();
  const AnalysisOptions& options = context.options;
  is_filtered_ = !options.modules.empty() || !options.ops.empty() || !options.phases.empty() || !options.roles.empty() ||
                 !context.trace.run().filters.empty();
  const StepTotals whole = steps.whole();
  broke_ = steps.broken_from() != UINT64_MAX;
  steps_ = whole.count;
  wastes_losses_ = harms_losses(whole);
  had_nonfinite_losses_ = !whole.nonfinite_losses.empty();
  nonfinite_in_order_ = find_nonfinite();
  reached_weights_ = find_in_weights(context.selection);
  harm_ = judge_harm(context.selection, whole);
  gave_up_last_step_ = harm_ == Severity::info && find_given_up(whole);
  if (gave_up_last_step_) harm_ = Severity::warning;
  harm_done_ = harm_done(whole, steps.broken_from());
  if (harm_ == Severity::info && divides_by_nonfinite()) {
    uint64_t most = 0;
    for (const NonfiniteBeginning& one : beginnings()) most = std::max(most, one.zeros.steps);
    if (wastes_many(most, whole.count)) harm_ = Severity::warning;
  }
  // Of a run whose last steps were all skipped the first of these need not be where it began.
  const bool only_skips = !broke_ && !reached_weights_ && whole.is_stuck();
  if ((harm_ == Severity::info || only_skips) && recurs(whole.skipped.size(), whole.count, kFewestSkipped))
    find_skipped_for_nan(whole.count);
  origins_ = find_origins();
  if (harm_ != Severity::info)
    for (NonfiniteOrigin& origin : origins_) origin = where_filled_became_nan(origin);
}

NonfiniteOrigin RangeJudgement::where_filled_became_nan(const NonfiniteOrigin& origin) const {
  const OpFunction function = context_.selection.op(origin.tensor).function;
  if (function != OpFunction::fill && function != OpFunction::masked_fill) return origin;
  const Snapshot of_rank = context_.trace.of_rank(origin.position.rank);
  const auto holds = [&](uint32_t tensor, const RowPosition& position, auto&& what) {
    bool found = false;
    of_rank.visit_history(tensor, {position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
      found = found || std::any_of(rows.begin(), rows.end(),
                                   [&](const TensorRow& row) { return position_of(row, position.rank) == position && what(row); });
      return !found;
    });
    return found;
  };
  if (!holds(origin.tensor, origin.position, holds_mask)) return origin;
  const auto has_nan = [](const TensorRow& row) { return row.statistics.nan > 0; };
  const NonfiniteWays ways = ways_from(context_, origin.tensor, origin.position);
  for (const std::vector<NonfiniteStop>& way : {ways.to_loss, ways.to_weights}) {
    for (const NonfiniteStop& stop : way)
      if (holds(stop.tensor, stop.position, has_nan)) return {stop.tensor, stop.position, 0, origin.tensor};
  }
  return origin;
}

const RangeJudgement::Tensor* RangeJudgement::find(uint32_t tensor) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), tensor, [](const Tensor& a, uint32_t b) { return a.index < b; });
  return found == tensors_.end() || found->index != tensor ? nullptr : &*found;
}

NonfiniteRows RangeJudgement::nonfinite(uint32_t tensor) const {
  NonfiniteRows rows = held(tensor, &TensorRanges::nonfinite);
  if (!is_mask(tensor)) rows.add(held(tensor, &TensorRanges::masked));
  return rows;
}

NonfiniteRows RangeJudgement::held(uint32_t tensor, NonfiniteRows TensorRanges::*rows) const {
  const Tensor& found = *find(tensor);
  NonfiniteRows all = found.judged.*rows;
  if (found.broken) all.add(found.broken->*rows);
  return all;
}

std::vector<bool> RangeJudgement::find_masks() const {
  std::vector<bool> masks(context_.selection.size());
  for (const Tensor& tensor : tensors_) {
    if (!context_.masks.may_be(tensor.index)) continue;
    const NonfiniteRows masked = held(tensor.index, &TensorRanges::masked);
    const std::vector<uint32_t>& readers = context_.masks.readers(tensor.index);
    masks[tensor.index] = masked.first &&
                          std::any_of(readers.begin(), readers.end(), [&](uint32_t i) { return find(i) != nullptr; }) &&
                          std::all_of(readers.begin(), readers.end(), [&](uint32_t i) {
                            if (find(i) == nullptr) return true;
                            const NonfiniteRows read = held(i, &TensorRanges::nonfinite);
                            return !read.first || read.first->step > masked.first->step;
                          });
  }
  return masks;
}

uint64_t RangeJudgement::held(uint32_t tensor, uint64_t RangeTotals::*count) const {
  const Tensor& found = *find(tensor);
  return found.judged.totals.*count + (found.broken ? found.broken->totals.*count : 0);
}

std::vector<uint32_t> RangeJudgement::find_nonfinite() const {
  std::vector<std::pair<RowPosition, uint32_t>> first;
  for (const Tensor& tensor : tensors_)
    if (const auto position = nonfinite(tensor.index).first) first.emplace_back(*position, tensor.index);
  std::sort(first.begin(), first.end());
  std::vector<uint32_t> in_order;
  for (const auto& [unused, tensor] : first) in_order.push_back(tensor);
  return in_order;
}

bool RangeJudgement::find_in_weights(const Selection& selection) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
    return is_kept(selection.tensor(tensor.index), selection.op(tensor.index)) && nonfinite(tensor.index).rows > 0;
  });
}

Severity RangeJudgement::judge_harm(const Selection& selection, const StepTotals& steps) const {
  if (broke_ || reached_weights_ || steps.is_stuck()) return Severity::error;
  // Of the gradients those that updates are made from: others may hold what a mask takes away.
  for (const Tensor& tensor : tensors_) {
    const Role role = selection.tensor(tensor.index).role;
    if (is_gradient_of_parameters(role) && nonfinite(tensor.index).rows > 0) return Severity::warning;
  }
  return harms_losses(steps) ? Severity::warning : Severity::info;
}

bool RangeJudgement::find_given_up(const StepTotals& steps) const {
  if (is_filtered_ || steps.count == 0 || steps.last.skipped || steps.last.level == RecordLevel::off) return false;
  if (context_.settings.with_value(SettingKind::optimizer).empty() || context_.trace.ranks().size() != 1) return false;
  const bool has_losses = !steps.last_losses.empty() || !steps.nonfinite_losses.empty();
  bool holds = false, is_updated = false;
  context_.trace.visit_rows_without_histograms({steps.last.step, steps.last.step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& made = context_.selection.tensor(row.tensor);
      const OpInfo& op = context_.selection.op(row.tensor);
      is_updated = is_updated || op.kind == OpKind::update;
      // Where a step has a loss, it is known of this one, too.
      const bool may_be_loss = !has_losses && op.phase == Phase::loss && row.statistics.count == 1;
      const bool is_harmful = is_gradient(made.role) ? op.phase == Phase::backward : may_be_loss;
      holds = holds || (is_harmful && !is_mask(row.tensor) && stored_nonfinite(row, made.dtype) > 0);
    }
    return !is_updated;
  });
  return holds && !is_updated;
}

// Where the run broke, what reached a loss or a weight did the harm; where no step was taken to its end, what reached a gradient of
// a parameter too.
NonfiniteHarm RangeJudgement::harm_done(const StepTotals& steps, uint64_t broken_from) const {
  // Some finite losses among others that are not end nothing.
  if (broken_from != UINT64_MAX)
    return {.loss = true, .weights = true, .from = std::min(broken_from, steps.nonfinite_losses.first_of_last_bout())};
  if (steps.is_stuck()) {
    // A dynamic scale may have skipped steps before and come down to one that fitted.
    const bool adapts = context_.trace.run().dynamic_loss_scale;
    return {.loss = true, .weights = true, .gradients = true, .from = adapts ? steps.last.step + 1 - steps.trailing_skips : 0};
  }
  if (reached_weights_) return {.weights = true, .from = UINT64_MAX};
  if (harm_ == Severity::warning) return {.loss = true, .weights = true, .gradients = true};
  return {};
}

bool RangeJudgement::holds_scale(uint32_t tensor) const {
  const Role role = context_.selection.tensor(tensor).role;
  const OpInfo& op = context_.selection.op(tensor);
  const bool is_scaled_loss = role == Role::loss && (op.function == OpFunction::scale || op.function == OpFunction::mul);
  return is_gradient(role) || is_scaled_loss || !(computes_forward(op.phase) || op.phase == Phase::data);
}

void RangeJudgement::find_skipped_for_nan(uint64_t steps) {
  for (const NonfiniteBeginning& one : beginnings()) {
    // A scale that fits keeps a narrow format's infinities away from gradients; those of a wide one came of a division by 0 or the
    // like.
    const bool is_scaled = holds_scale(one.tensor);
    const bool may_overflow = one.infinities > 0 && is_plainly_narrow(context_.selection.tensor(one.tensor).dtype);
    if (is_scaled && (may_overflow || one.overflowed > 0)) continue;
    if (is_scaled ? !wastes_many(one.skipped, steps) : !recurs(one.skipped, steps, kFewestSkipped)) continue;
    harm_ = std::max(harm_, Severity::warning);
    skipped_for_nan_ = {one.tensor, one.first, 0};
    return;
  }
}

bool RangeJudgement::divides_by_nonfinite() const {
  const std::set<uint32_t> nonfinite(nonfinite_in_order_.begin(), nonfinite_in_order_.end());
  const auto& edges = context_.trace.graph().edges();
  return std::any_of(edges.begin(), edges.end(), [&](const GraphEdge& edge) {
    if (!divides(context_.trace.ops()[edge.consumer].function)) return false;
    const auto made = context_.graph.made_by(edge.producer, edge.slot);
    return std::any_of(made.begin(), made.end(), [&](uint32_t tensor) { return nonfinite.contains(tensor); });
  });
}

const std::vector<NonfiniteBeginning>& RangeJudgement::beginnings() const {
  if (!beginnings_) beginnings_ = followed_.find(context_, harm_done_, is_mask_);
  return *beginnings_;
}

const NonfiniteBeginning* RangeJudgement::beginning_of(const NonfiniteOrigin& origin) const {
  const std::vector<NonfiniteBeginning>& all = beginnings();
  const auto found = std::find_if(all.begin(), all.end(), [&](const NonfiniteBeginning& one) {
    return one.tensor == origin.tensor && one.first.rank == origin.position.rank;
  });
  return found == all.end() ? nullptr : &*found;
}

std::vector<NonfiniteOrigin> RangeJudgement::find_origins() const {
  std::vector<NonfiniteOrigin> first;
  if (!nonfinite_in_order_.empty()) {
    const NonfiniteRows rows = nonfinite(nonfinite_in_order_.front());
    first = {{nonfinite_in_order_.front(), *rows.first, rows.overflowed}};
  }
  if (skipped_for_nan_) return {*skipped_for_nan_};
  if (harm_ == Severity::info) {
    if (!had_nonfinite_losses_) return first;
    // What got to a loss was seen by whoever trains, the rest was not.
    std::optional<NonfiniteOrigin> of_loss;
    for (const NonfiniteBeginning& one : beginnings())
      if (one.of_loss && (!of_loss || one.of_loss->position < of_loss->position)) of_loss = one.of_loss;
    return of_loss ? std::vector{*of_loss} : first;
  }
  const bool are_apart = harm_ == Severity::warning;
  // Where a run broke, what had reached its loss by then broke it. Running statistics reach the test loss alone.
  const auto came_in_time = [&](const NonfiniteBeginning& one) { return one.loss && *one.loss <= harm_done_.from; };
  const bool some_came = broke_ && std::any_of(beginnings().begin(), beginnings().end(), came_in_time);
  std::optional<NonfiniteOrigin> origin, of_losses, of_zeros;
  const auto keep_earlier = [](std::optional<NonfiniteOrigin>& into, const NonfiniteOrigin& other) {
    if (!into || other.position < into->position) into = other;
  };
  for (const NonfiniteBeginning& one : beginnings()) {
    // What reached no weight was gone with its step.
    const bool was_there = one.weights || harm_done_.from == UINT64_MAX || one.last_step + 1 >= harm_done_.from;
    if (one.harmed && was_there && (!some_came || came_in_time(one))) keep_earlier(origin, *one.harmed);
    if (are_apart && wastes_losses_ && one.of_loss) keep_earlier(of_losses, *one.of_loss);
    if (are_apart && wastes_many(one.zeros.steps, steps_)) keep_earlier(of_zeros, one.zeros.origin);
  }
  std::vector<NonfiniteOrigin> origins;
  for (const std::optional<NonfiniteOrigin>& each : {origin, of_losses, of_zeros}) {
    const auto is_same = [&](const NonfiniteOrigin& other) { return other.tensor == each->tensor; };
    if (each && std::none_of(origins.begin(), origins.end(), is_same)) origins.push_back(*each);
  }
  if (origins.empty()) return first;
  std::sort(origins.begin(), origins.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  return origins;
}

const NonfiniteOrigin* RangeJudgement::main_origin() const {
  const auto is_told = [&](const NonfiniteOrigin& origin) { return start_of(origin) != NonfiniteStart::none; };
  const auto first = std::find_if(origins_.begin(), origins_.end(), is_told);
  return first != origins_.end() ? &*first : origins_.empty() ? nullptr : &origins_.front();
}

bool RangeJudgement::is_origin(uint32_t tensor) const {
  return std::any_of(origins_.begin(), origins_.end(), [&](const NonfiniteOrigin& origin) { return origin.tensor == tensor; });
}

NonfiniteStart RangeJudgement::start_of(const NonfiniteOrigin& origin) const {
  const Selection& selection = context_.selection;
  const TensorInfo& made = selection.tensor(origin.tensor);
  const bool overflowed = origin.overflowed > 0 && is_plainly_narrow(made.dtype);
  // Told with the steps that were taken with them (GradientJudgement::overflow_kept).
  if (overflowed && harm_ == Severity::warning && !gave_up_last_step_ && is_gradient(made.role)) return NonfiniteStart::none;
  if (!overflowed || harm_ == Severity::info || selection.op(origin.tensor).phase == Phase::optimizer) return NonfiniteStart::other;
  return is_gradient(made.role) ? NonfiniteStart::gradient_overflowed : NonfiniteStart::value_overflowed;
}

}  // namespace ulpscope
