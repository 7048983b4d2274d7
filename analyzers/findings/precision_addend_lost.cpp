#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kAddendLost{"precision.addend_lost",
                               "{worst} adds two tensors in {format}, and {share} of the smaller one is lost."};
constexpr Template kOtherAddends{"precision.addend_lost.others",
                                 "{sums} of {all:count such sum} lost {limit:%} or more, in the median of the steps measured."};
constexpr Template kAddInFp32{"advice.add_in_fp32",
                              "Keep the larger one, as the sum that residual branches are added to, in FP32, or keep it small."};

// From so much on the sum tells next to nothing of the smaller one.
constexpr double kHarmful = 0.5;

void find_lost_addends(const RunFacts& facts, Findings& found) {
  const std::vector<ValueLoss>& addends = facts.value_losses().addends;  // the largest first
  if (addends.empty() || addends.front().share < ValueLoss::kFelt) return;
  const bool is_harmful = addends.front().share >= kHarmful;
  const double limit = is_harmful ? kHarmful : ValueLoss::kFelt;
  std::vector<Evidence> evidence;
  Extent extent;
  for (const ValueLoss& each : addends) {
    if (each.share < limit) break;
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(each.tensor),
                          {{"lost", each.share, Unit::share}, {"measured_steps", count_cell(each.steps), Unit::count}}});
    extent.tensors.push_back(each.tensor);
    keep_first(extent.first_step, std::optional(each.first_step));
  }
  const ValueLoss& worst = addends.front();
  Sentences title{kAddendLost({{"worst", tensor_place(facts.selection, worst.tensor)},
                               {"format", format_name(*info(facts.selection.tensor(worst.tensor).dtype).format)},
                               {"share", {worst.share, Unit::share}}})};
  title += kOtherAddends({{"sums", extent.tensors.size()}, {"all", addends.size()}, {"limit", {limit, Unit::share}}});
  found.add(is_harmful ? Severity::warning : Severity::info, std::move(title), std::move(evidence), kAddInFp32(),
            std::move(extent));
}

}  // namespace

extern constinit const FindingRule precision_addend_lost{
    .code = "precision.addend_lost",
    .part = Part::errors,
    .raised =
        "10% or more of the smaller of two tensors that a forward pass adds up in FP16 or BF16 did not arrive in the sum: a "
        "warning "
        "from half of it on.",
    .meaning =
        "An addend below half an ulp of the other leaves it as it was: what a residual branch computes is thrown away where what "
        "it is "
        "added to is 2^9 times as large in BF16, 2^12 times in FP16.",
    .help = "The larger one in FP32, or smaller values.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/residual_absorbed_in_bf16.toml",
    .find = find_lost_addends,
};

}  // namespace ulpscope::findings
