#include "ulpscope/analyzers/judgements/scale_judgement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace ulpscope {

namespace {

constexpr uint64_t kCollapse = StepTotals::kStuck;
// PyTorch's growth interval, where the trace shows none.
constexpr uint64_t kGrowthInterval = 2000;

// The last steps were skipped, and the scale stayed where it was: it may fall no further.
bool stands_at_floor(const AnalysisContext& context, const StepTotals& steps) {
  const auto is_kept = [](const ScaleChange& change) { return change.skipped && change.before == change.after; };
  if (!context.trace.run().dynamic_loss_scale || steps.trailing_skips < kCollapse || steps.changes.size() < kCollapse) return false;
  if (!std::all_of(steps.changes.end() - kCollapse, steps.changes.end(), is_kept)) return false;
  // Some scalers wait for several skipped steps before they back off.
  return steps.last.scale_after <= context.settings.number(SettingKind::scale_floor).value_or(INFINITY);
}

bool has_collapsed(const RunInfo& run, const StepTotals& steps, bool at_floor) {
  // A search that started far too high skips every step until it has come down.
  const bool searching = steps.leading_skips == steps.count && steps.lowest_scale >= 1 && !at_floor;
  const bool fell = steps.last.scale_after < steps.highest_scale;
  return run.dynamic_loss_scale && steps.trailing_skips >= kCollapse && (fell || at_floor) && !searching &&
         !steps.takes_growth_back();
}

bool thrashes(const RunInfo& run, const StepTotals& steps) {
  if (!run.dynamic_loss_scale) return false;
  uint64_t grown = 0, skipped = 0;
  for (const ScaleChange& change : steps.changes) {
    grown += change.after > change.before;
    skipped += change.skipped && grown > 0;
  }
  return skipped < steps.count && 10 * std::min(skipped, 2 * grown) > steps.count - steps.leading_skips;
}

// The scaler's, or where the producer did not tell, that of a growth whose clean steps began after a change that was seen. Those
// before the first change may have begun before the first step seen: in the run that this one resumed from.
uint64_t growth_interval_of(const RunInfo& run, const StepTotals& steps) {
  if (run.growth_interval > 0) return static_cast<uint64_t>(run.growth_interval);
  for (size_t i = 1; i < steps.changes.size(); ++i) {
    if (steps.changes[i].after > steps.changes[i].before) return steps.changes[i].clean_steps + 1;
  }
  return kGrowthInterval;
}

bool needs_more_than_fits(const StepFit& fit) {
  return fit.largest && fit.smallest && fit.largest->upper != ExponentBounds::kNoUpper &&
         fit.smallest->lower != ExponentBounds::kNoLower && fit.smallest->lower > fit.largest->upper;
}

// Of what several ranks found first in a step, what ran first: the others may have got it from that rank.
bool ran_before(const AnalysisContext& context, const EventRow& left, const EventRow& right) {
  const auto op_of = [&](const EventRow& event) { return context.selection.tensor(static_cast<uint32_t>(event.tensor)).op; };
  const auto pass_of = [](const EventRow& event) { return std::pair(event.micro_batch, event.loss_index); };
  if (pass_of(left) != pass_of(right)) return pass_of(left) < pass_of(right);
  return !context.trace.graph().runs_before(op_of(right), op_of(left));
}

}  // namespace

ScaleJudgement::ScaleJudgement(const AnalysisContext& context, const StepTotals& steps, const StepTotals& judged, uint64_t broke,
                               const RangeFacts& facts, const FittingScales& fitting)
    : scaling(steps.count == 0 ? LossScaling::no_steps
              : steps.scaled   ? LossScaling::scaled
                               : LossScaling::none),
      zones(judged.zones),
      judged_scale(judged.count > 0 ? judged.last.scale_after : 1.0),
      broken_from(broke),
      ranges_(facts.ranges().judged(room_)),
      no_step_was_taken_(took_no_step(context, steps)),
      at_floor_(stands_at_floor(context, steps)),
      collapsed_(scaling == LossScaling::scaled && has_collapsed(context.trace.run(), steps, at_floor_)),
      is_thrashing_(thrashes(context.trace.run(), steps)),
      none_fits_(needs_more_than_fits(fitting.run)),
      growth_interval_(growth_interval_of(context.trace.run(), steps)) {
  judge_gradients(context.selection);
  flushes_ = flushed_share_ > context.options.flushed_limit;
  scale_is_missing_ = scaling == LossScaling::none && flushes_ && !fitting.what_if && !context.trace.run().dynamic_loss_scale;
  blame_events(context, steps);
}

// The first nonfinite output of a step, of any phase, is the cause. A backoff's event names the first gradient with nonfinite
// values, which is asked where the other is missing.
void ScaleJudgement::blame_events(const AnalysisContext& context, const StepTotals& steps) {
  const std::vector<ScaleChange>& changes = steps.changes;
  blame_.resize(changes.size());
  for (const EventKind kind : {EventKind::scale_backoff, EventKind::nonfinite}) {
    for (const EventRow& event : context.trace.events()) {
      if (event.kind != kind || event.tensor < 0) continue;
      const auto change = std::lower_bound(changes.begin(), changes.end(), event.step,
                                           [](const ScaleChange& left, uint64_t step) { return left.step < step; });
      if (change == changes.end() || change->step != event.step || !change->skipped) continue;
      if (context.masks.may_be(static_cast<uint32_t>(event.tensor))) continue;
      const EventRow*& blame = blame_[change - changes.begin()];
      if (blame == nullptr || blame->kind != kind || blame->rank == event.rank || ran_before(context, event, *blame))
        blame = &event;
    }
  }
  std::map<int64_t, uint64_t> blamed;
  for (const EventRow* event : blame_) {
    if (event) ++blamed[event->tensor];
  }
  for (const auto& [tensor, skipped_steps] : blamed) blamed_.push_back({static_cast<uint32_t>(tensor), skipped_steps});
  std::stable_sort(blamed_.begin(), blamed_.end(),
                   [](const Blamed& a, const Blamed& b) { return a.skipped_steps > b.skipped_steps; });
}

void ScaleJudgement::judge_gradients(const Selection& selection) {
  for (const uint32_t i : ranges_.tensors.tensors()) {
    const TensorInfo& tensor = selection.tensor(i);
    if (!is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype)) continue;
    const TensorRanges& facts = *ranges_.tensors.find(i);
    saturated_ = saturated_ || facts.totals.saturated > 0;
    if (facts.scaled.flush_loss.matters())
      flushed_share_ = std::max(flushed_share_, share(facts.used.flushed.lower, facts.used.base));
  }
}

bool ScaleJudgement::took_no_step(const AnalysisContext& context, const StepTotals& steps) const {
  const Snapshot& trace = context.trace;
  if (steps.count == 0 || steps.skipped.size() < steps.count || steps.count < trace.step_count() / trace.ranks().size())
    return false;
  // A run that goes on may be looking for its scale.
  return trace.writer_state() != WriterState::alive || steps.is_stuck();
}

}  // namespace ulpscope
