#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/update_judgement.h"
#include "ulpscope/analyzers/what_if.h"

namespace ulpscope::findings {

namespace {

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

// What makes updates shorter. `weight`: one that they were too long for, where that is known.
std::string advice_on(const RunFacts& facts, std::optional<uint32_t> weight) {
  const SettingNames& settings = facts.context.settings;
  if (settings.number(SettingKind::momentum).value_or(0) >= 1)
    return fmt::format("A momentum of 1 or more forgets nothing{}: set it below 1",
                       in_brackets({settings.now(SettingKind::momentum)}));
  std::string advice =
      fmt::format("Lower the learning rate{}, or warm it up", in_brackets({settings.only_now(SettingKind::learning_rate)}));
  // Updates of Adam and Lion are as long, however long the gradients are.
  const OpFunction rule = weight ? facts.selection.op(*weight).function : OpFunction::other;
  if (rule == OpFunction::sgd_update) advice += ", or clip the gradients" + in_brackets({settings.name(SettingKind::clip_norm)});
  if (settings.number(SettingKind::weight_decay).value_or(0) * settings.number(SettingKind::learning_rate).value_or(0) >= 1)
    advice += fmt::format("; the weight decay times the learning rate is 1 or more{}, which alone turns weights around",
                          in_brackets({settings.now(SettingKind::weight_decay)}));
  return advice;
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

void find_divergence(const RunFacts& facts, Findings& found) {
  if (!facts.sees_updates()) return;
  // So soon after an update that was too large a run breaks for it.
  constexpr uint64_t kSoon = 10;
  // Losses that are so many times the first one before anything was NaN or infinite: no format made them.
  constexpr double kGrown = 10;
  const AnalysisContext& context = facts.context;
  const StepTotals& steps = facts.judged_steps();
  const RunUpdates& all = facts.updates().whole();
  const uint64_t broke = facts.step_facts.broken_from();
  const uint64_t first_nonfinite = first_nonfinite_step(facts);
  const bool large = all.first_large && all.first_large->step < first_nonfinite;
  const bool broke_soon = large && all.has_large() && facts.broke() && broke - all.first_large->step <= kSoon;
  // The last losses vary from batch to batch: their median, where there are many.
  const std::vector<double> ends = last_losses(steps);
  if (ends.empty() || !std::isfinite(steps.first.loss) || !steps.first.loss_known) return;
  const double first = steps.first.loss, last = median(ends);
  const bool no_better = steps.count > 1 && last >= first;
  const bool is_sure = all.has_large() || steps.count >= 2 * kEndLosses;  // a few losses vary
  const bool grew = !facts.broke() && first_nonfinite == UINT64_MAX && steps.count >= 2 * kEndLosses && first > 0 &&
                    last > 2 * median(steps.first_losses) &&
                    last > *std::max_element(steps.first_losses.begin(), steps.first_losses.end());
  const bool grew_until_it_broke = facts.broke() && first_nonfinite >= broke && steps.skipped.empty() && first > 0 &&
                                   steps.count >= kEndLosses && last > kGrown * first;
  // Updates as large as the weights are no harm where the loss went down all the same.
  if (!(large && (broke_soon || (no_better && is_sure))) && !grew && !grew_until_it_broke) return;
  const std::string losses = fmt::format(
      "the loss went from {:.4g} in step {} to {:.4g}{}", first, steps.first.step, last,
      ends.size() == 1 ? ""
                       : fmt::format(", the median of the last {} losses{}", ends.size(), facts.broke() ? " before it broke" : ""));
  const SettingNames& settings = context.settings;
  if (!large) {
    found.add(
        Severity::error,
        fmt::format("The run diverged: {}{}.", losses, facts.broke() ? "" : ", and nothing overflowed in a step that was taken"),
        {{key_of_step(context.trace, steps.last.step), {{"loss", last}, {"first_loss", first}}}},
        advice_on(facts, std::nullopt) + ".", grew_until_it_broke ? all_weights(facts, steps.first.step + 1) : Extent());
    return;
  }
  const UpdateRatio& ratio = *all.first_large;
  const TensorInfo& weight = facts.selection.tensor(ratio.tensor);
  RowKey key = facts.selection.key(ratio.tensor);
  key.step = ratio.step;
  const std::string advice = advice_on(facts, ratio.tensor);
  found.add(Severity::error,
            fmt::format("The run diverged: the update of step {} was {:.3g} times as large as {}, before anything overflowed in a "
                        "step that was taken{}.",
                        ratio.step, ratio.ratio, weight.parameter.empty() ? facts.selection.name(ratio.tensor) : weight.parameter,
                        no_better ? ", and " + losses : ""),
            {{key, {{"update_over_weight", ratio.ratio}}}},
            is_narrow(weight.dtype) ? advice + ", or keep FP32 master weights" +
                                          in_brackets({settings.switched(SettingKind::master_weights, true)}) + "."
                                    : advice + ": no format would have helped.",
            {{ratio.tensor}, ratio.step});
}

}  // namespace

extern constinit const FindingRule run_diverged{
    .code = "run.diverged",
    .part = Part::run,
    .raised =
        "An update was larger than the weights that it changed before anything overflowed, and the loss did not come down or "
        "broke soon; or the loss grew to the end of the run without an overflow, or to ten times the first one until it broke.",
    .meaning = "The optimizer's steps are too long. FP32 and BF16 would have ended as badly, only later.",
    .help = "Lower the learning rate, warm it up, or clip the norm of the gradients.",
    .explains = kOfNonfinite + Codes{"model.values_grow", "scale.no_scale_fits", "scale.over_scaled", "range.values_flushed",
                                     "range.gradients_flushed", "range.gradients_vanish", "model.dead_output", "updates.lost"},
    .shown_by = "experiments/failures/diverges_fp32.toml",
    .find = find_divergence,
};

}  // namespace ulpscope::findings
