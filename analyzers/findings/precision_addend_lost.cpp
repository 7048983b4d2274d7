#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/tensor_evidence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kAddendLost{"precision.addend_lost",
                               "{worst} lost {share} of the smaller of its two operands, in {format}, in the elements looked at."};
constexpr Template kOtherAddends{"precision.addend_lost.others", "So did {others:count other sum}, by {limit:%} or more."};
constexpr Template kAddInFp32{"advice.add_in_fp32",
                              "Keep the larger one, as the sum that residual branches are added to, in FP32, or keep it small."};

void tell(const RunFacts& facts, const std::vector<const AddendLoss*>& lost, double limit, Severity severity, Findings& found) {
  if (lost.empty()) return;
  TensorEvidence told;
  for (const AddendLoss* const each : lost)
    told.add(facts.selection, each->loss.tensor, each->loss.first_step,
             {{"lost", each->loss.share, Unit::share},
              {"size", each->size, Unit::share},
              {"measured_steps", count_cell(each->loss.steps), Unit::count}});
  const ValueLoss& worst = lost.front()->loss;
  Sentences title{kAddendLost({{"worst", tensor_place(facts.selection, worst.tensor)},
                               {"share", {worst.share, Unit::share}},
                               {"format", format_name(*info(facts.selection.tensor(worst.tensor).dtype).format)}})};
  if (lost.size() > 1) title += kOtherAddends({{"others", lost.size() - 1}, {"limit", {limit, Unit::share}}});
  found.add(severity, std::move(title), std::move(told.evidence), kAddInFp32(), std::move(told.extent));
}

void find_lost_addends(const RunFacts& facts, Findings& found) {
  std::vector<const AddendLoss*> harmful, others;
  for (const AddendLoss& each : facts.value_losses().addends)  // the largest first
    (each.is_harmful() ? harmful : others).push_back(&each);
  tell(facts, harmful, AddendLoss::kHarmful, Severity::warning, found);
  if (harmful.empty()) tell(facts, others, ValueLoss::kFelt, Severity::info, found);
}

}  // namespace

extern constinit const FindingRule precision_addend_lost{
    .code = "precision.addend_lost",
    .part = Part::errors,
    .raised =
        "10% or more of the smaller of two tensors that a forward pass adds up in FP16 or BF16 did not arrive in the sum: a "
        "warning from half of it on, where it is 2^-11 or more of the larger one.",
    .meaning =
        "An addend below half an ulp of the other leaves it as it was: what a residual branch computes is thrown away where what "
        "it is added to is 2^9 times as large in BF16, 2^12 times in FP16.",
    .help = "The larger one in FP32, or smaller values.",
    .shown_by = "experiments/failures/residual_absorbed_in_bf16.toml",
    .find = find_lost_addends,
};

}  // namespace ulpscope::findings
