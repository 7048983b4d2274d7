#include "ulpscope/analyzers/run_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/what_if.h"

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
                                         ends.size() == 1 ? ""
                                                          : fmt::format(", the median of the last {} losses{}", ends.size(),
                                                                        broke == UINT64_MAX ? "" : " before it broke"));
  const SettingNames& settings = context.settings;
  const std::string advice =
      fmt::format("Lower the learning rate{}, warm it up, or clip the gradients{}",
                  in_brackets({settings.now(SettingKind::learning_rate)}), in_brackets({settings.name(SettingKind::clip_norm)}));
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
    finding.suggestion = is_narrow(weight.dtype) ? advice + ", or keep FP32 master weights" +
                                                       in_brackets({settings.switched(SettingKind::master_weights, true)}) + "."
                                                 : advice + ": no format would have helped.";
  } else {
    finding.title = fmt::format("The run diverged: {}, and nothing overflowed.", losses);
    finding.evidence.push_back({key_of_step(context.trace, whole.last.step), {{"loss", last}, {"first_loss", first}}});
    finding.suggestion = advice + ".";
  }
  report.findings.push_back(std::move(finding));
}

// What guessing gives: of C classes one C-th of the test set, and a loss of log(C) where it is not multiplied or smoothed.
void add_guessing_finding(const AnalysisContext& context, const StepFacts& facts, Report& report) {
  constexpr size_t kLeastSteps = 30;
  constexpr double kBetter = 0.01;                // of the test set: the chance of a small one
  if (context.options.restricts_steps()) return;  // a beginning is no result
  const StepTotals steps = facts.judged();
  const std::vector<OpInfo>& ops = context.trace.ops();
  const auto loss = std::find_if(ops.begin(), ops.end(), [](const OpInfo& op) {
    return op.function == OpFunction::cross_entropy && op.phase != Phase::evaluation;
  });
  if (loss == ops.end() || steps.count < kLeastSteps || steps.last_losses.size() < kEnd) return;
  const auto loss_op = static_cast<uint32_t>(loss - ops.begin());
  const GraphEdge* const read = context.graph.read_by(loss_op, 0);
  if (read == nullptr) return;
  const std::span<const uint32_t> logits = context.graph.made_by(read->producer, read->slot);
  if (logits.empty() || context.selection.tensor(logits.front()).shape.size() < 2) return;
  const auto classes = static_cast<double>(context.selection.tensor(logits.front()).shape[1]);
  if (!(classes >= 2)) return;
  constexpr const char* kAdvice =
      "Where nothing else was found, look at the learning rate and its schedule, and at the range of the inputs: features far from "
      "1 saturate "
      "a model.";
  std::optional<double> accuracy;
  for (const EventRow& event : context.trace.events())
    if (event.kind == EventKind::metric && event.text == "test_accuracy") accuracy = event.value;
  const RowKey last_step = key_of_step(context.trace, steps.last.step);
  if (accuracy) {
    if (*accuracy > 1 / classes + kBetter) return;
    report.findings.push_back(
        {"run.no_better_than_guessing",
         Severity::error,
         fmt::format(
             "The run learned nothing that helps: it has {:.3g}% of the test set right, and guessing among {} classes {:.3g}%.",
             100 * *accuracy, classes, 100 / classes),
         {{last_step, {{"test_accuracy", *accuracy, Unit::share}, {"of_guessing", 1 / classes, Unit::share}}}},
         kAdvice,
         {}});
    return;
  }
  // A factor or smoothing makes another loss of it.
  const std::span<const GraphEdge> uses = context.trace.graph().uses(loss_op);
  const bool multiplied = std::any_of(
      uses.begin(), uses.end(), [&](const GraphEdge& edge) { return ops[edge.consumer].phase == Phase::loss && edge.slot == 0; });
  if (multiplied || attribute(*loss, "label_smoothing").value_or(0) > 0) return;
  const std::vector<double> last = last_losses(steps);
  const double guess = std::log(classes), least = *std::min_element(last.begin(), last.end());
  // Batches differ: of ten losses that guessing gives, the least is below their mean, and half of them are.
  if (!(least >= 0.9 * guess) || !(median(last) >= 0.99 * guess)) return;
  report.findings.push_back(
      {"run.no_better_than_guessing",
       Severity::error,
       fmt::format(
           "The run learned nothing that helps: each of its last {} losses is {:.4g} or more, and guessing all {} classes alike "
           "gives log({}) = {:.4g}.",
           kEnd, least, classes, classes, guess),
       {{last_step, {{"least_loss", least}, {"loss_of_guessing", guess}}}},
       kAdvice,
       {}});
}

}  // namespace ulpscope
