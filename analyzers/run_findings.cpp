#include "ulpscope/analyzers/run_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ulpscope {

namespace {

// Of so many losses at the end of a run.
constexpr size_t kEnd = 10;

double median(std::vector<double> losses) {
  for (double& loss : losses)
    if (std::isnan(loss)) loss = INFINITY;
  const auto middle = losses.begin() + static_cast<std::ptrdiff_t>(losses.size() / 2);
  std::nth_element(losses.begin(), middle, losses.end());
  return *middle;
}

std::vector<double> last_losses(const StepTotals& steps) {
  const size_t n = std::min(kEnd, steps.last_losses.size());
  return {steps.last_losses.end() - static_cast<std::ptrdiff_t>(n), steps.last_losses.end()};
}

}  // namespace

void add_divergence_finding(const AnalysisContext& context, const StepFacts& facts, const UpdateFacts& updates, Report& report) {
  // So soon after an update that was too large a run breaks for it.
  constexpr uint64_t kSoon = 10;
  const StepTotals steps = facts.judged(), whole = facts.whole();
  const RunUpdates all = updates.updates().whole();
  const uint64_t broke = facts.broken_from();
  // Before anything was NaN or infinite. In a skipped step that is how a scaler finds its level.
  uint64_t first_nonfinite = UINT64_MAX;
  for (const EventRow& event : context.trace.events()) {
    if (event.kind == EventKind::nonfinite && event.step >= context.options.steps.first && !whole.skipped.contains(event.step))
      first_nonfinite = std::min(first_nonfinite, event.step);
  }
  const bool large = all.first_large && all.first_large->step < first_nonfinite;
  const bool broke_soon = large && all.has_large() && broke != UINT64_MAX && broke - all.first_large->step <= kSoon;
  // The last losses vary from batch to batch: their median, where there are many. One that is NaN or infinite is as bad as can be.
  const std::vector<double> ends = last_losses(steps);
  if (ends.empty() || !std::isfinite(steps.first.loss) || !steps.first.loss_known) return;
  const double first = steps.first.loss, last = median(ends);
  const bool no_better = steps.count > 1 && last >= first;
  const bool is_sure = all.has_large() || steps.count >= 2 * kEnd;  // a few losses vary
  const bool grew = broke == UINT64_MAX && first_nonfinite == UINT64_MAX && steps.count >= 2 * kEnd && first > 0 &&
                    last > 2 * median(steps.first_losses) &&
                    last > *std::max_element(steps.first_losses.begin(), steps.first_losses.end());
  // Updates as large as the weights are no harm where the loss went down all the same.
  if (!(large && (broke_soon || (no_better && is_sure))) && !grew) return;
  Finding finding{"run.diverged", Severity::error, "", {}, "", {}};
  const std::string losses = fmt::format("the loss went from {:.4g} in step {} to {:.4g}{}", first, steps.first.step, last,
                                         ends.size() == 1 ? "" : fmt::format(", the median of the last {} steps", ends.size()));
  const SettingNames& settings = context.settings;
  const std::string advice = fmt::format("Lower the learning rate{}, warm it up, or clip the gradients{}",
                                         in_brackets({settings.with_value(SettingKind::learning_rate)}),
                                         in_brackets({settings.name(SettingKind::clip_norm)}));
  if (large) {
    const UpdateRatio& ratio = *all.first_large;
    const TensorInfo& weight = context.selection.tensor(ratio.tensor);
    RowKey key = context.selection.key(ratio.tensor);
    key.step = ratio.step;
    finding.title =
        fmt::format("The run diverged: the update of step {} was {:.3g} times as large as {}, before anything overflowed{}.",
                    ratio.step, ratio.ratio, weight.parameter.empty() ? context.selection.name(ratio.tensor) : weight.parameter,
                    no_better ? ", and " + losses : "");
    finding.evidence.push_back({key, {{"update_over_weight", ratio.ratio}}});
    finding.extent = {{ratio.tensor}, ratio.step};
    finding.suggestion = advice + ": no format would have helped.";
  } else {
    finding.title = fmt::format("The run diverged: {}, and nothing overflowed.", losses);
    finding.evidence.push_back({key_of_step(context.trace, whole.last.step), {{"loss", last}, {"first_loss", first}}});
    finding.suggestion = advice + ".";
  }
  report.findings.push_back(std::move(finding));
}

// The loss of a classifier that finds all classes equally likely is the logarithm of how many there are.
void add_guessing_finding(const AnalysisContext& context, const StepFacts& facts, Report& report) {
  constexpr size_t kLeastSteps = 30;
  if (context.options.restricts_steps()) return;  // a beginning is no result
  const StepTotals steps = facts.judged();
  const std::vector<OpInfo>& ops = context.trace.ops();
  const auto loss = std::find_if(ops.begin(), ops.end(), [](const OpInfo& op) {
    return op.function == OpFunction::cross_entropy && op.phase != Phase::evaluation;
  });
  if (loss == ops.end() || steps.count < kLeastSteps || steps.last_losses.size() < kEnd) return;
  const GraphEdge* const read = context.graph.read_by(static_cast<uint32_t>(loss - ops.begin()), 0);
  if (read == nullptr) return;
  const std::span<const uint32_t> logits = context.graph.made_by(read->producer, read->slot);
  if (logits.empty() || context.selection.tensor(logits.front()).shape.size() < 2) return;
  const auto classes = static_cast<double>(context.selection.tensor(logits.front()).shape[1]);
  const std::vector<double> last = last_losses(steps);
  const double guess = std::log(classes), least = *std::min_element(last.begin(), last.end());
  // Batches differ: of ten losses that guessing gives, the least is below their mean, and half of them are.
  if (!(classes >= 2) || !(least >= 0.9 * guess) || !(median(last) >= 0.99 * guess)) return;
  report.findings.push_back(
      {"run.no_better_than_guessing",
       Severity::error,
       fmt::format(
           "The run learned nothing that helps: each of its last {} losses is {:.4g} or more, and guessing all {} classes alike "
           "gives log({}) = {:.4g}.",
           kEnd, least, classes, classes, guess),
       {{key_of_step(context.trace, steps.last.step), {{"least_loss", least}, {"loss_of_guessing", guess}}}},
       "Where nothing else was found, look at the learning rate and at the range of the inputs: features far from 1 saturate a "
       "model.",
       {}});
}

}  // namespace ulpscope
