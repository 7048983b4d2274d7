#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/unscaled_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoStepAsked{"scale.none.no_steps", "The selection has no recorded step."};
constexpr Template kLossUnscaled{"scale.none", "The loss was not scaled."};

void find_unscaled_loss(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling == LossScaling::no_steps) {
    found.add(Severity::info, kNoStepAsked());
  } else if (scale.scaling == LossScaling::none && !scale.scale_is_missing()) {
    found.add(Severity::info, {kLossUnscaled(), scales_that_would_fit(facts)});
  }
}

}  // namespace

extern constinit const FindingRule scale_none{
    .code = "scale.none",
    .part = Part::scale,
    .raised = "The loss was not scaled.",
    .meaning = "FP16 gradients of 2^-25 or less underflow to zero; BF16 and FP32 need no loss scale.",
    .shown_by = "experiments/failures/diverges_fp32.toml",
    .find = find_unscaled_loss,
};

}  // namespace ulpscope::findings
