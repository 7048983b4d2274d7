#include <fmt/format.h>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_stalled(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || !facts.context.trace.run().dynamic_loss_scale || facts.broke()) return;
  const uint64_t interval = scale.growth_interval(), clean_steps = facts.steps().clean_steps;
  if (clean_steps <= 2 * interval) return;
  found.add(Severity::info,
            fmt::format("The loss scale has stood at {} for {} without overflow, more than twice the growth interval of {}.",
                        scale_text(facts.steps().last.scale_after), count_of(clean_steps, "step"), interval),
            {}, "It is at its cap, or its growth interval is longer than that.");
}

}  // namespace

extern constinit const FindingRule scale_stalled{
    .code = "scale.stalled",
    .part = Part::scale,
    .raised = "The loss scale stood still for more than two growth intervals.",
    .meaning = "It is at its cap, or grows more slowly.",
    .shown_by = "experiments/failures/scaler_thrashes.toml --set scaler.initial=1024 --set scaler.cap=1024",
    .find = find_stalled,
};

}  // namespace ulpscope::findings
