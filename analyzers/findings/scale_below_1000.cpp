#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLookAtBackoffs{"advice.look_at_backoffs",
                                   "Look at the tensor that overflows first: its largest values keep the loss scale low for all "
                                   "gradients."};

void find_below_1000(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  const auto& [below_100, below_1000, above_100000] = scale.zones;
  // Where all of them stood below 100 too, scale.below_100 says so.
  if (scale.scaling != LossScaling::scaled || below_1000.steps == 0 || below_100.steps == below_1000.steps) return;
  tell_low_zone(facts, 1, kLookAtBackoffs(), found);
}

}  // namespace

extern constinit const FindingRule scale_below_1000{
    .code = "scale.below_1000",
    .part = Part::scale,
    .raised = "The loss scale was below 1,000.",
    .meaning = "Like scale.below_100, less severe.",
    .help = "Like scale.below_100.",
    .shown_by = "experiments/failures/one_outlier_batch_skipped.toml",
    .find = find_below_1000,
};

}  // namespace ulpscope::findings
