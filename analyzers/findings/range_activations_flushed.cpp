#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kActivationsFlushed{
    "range.activations_flushed",
    "{tensors:count tensor} of the forward pass lost more than half of the nonzero elements to zero when rounded, and {norm}."};
constexpr Template kLargerInputsOrFp32{"advice.scale_inputs_or_fp32",
                                       "No loss scale helps a forward value: scale the inputs up, or keep the op in FP32."};
constexpr Template kLargerInputsOrBf16{
    "advice.scale_inputs_or_bf16", "No loss scale helps a forward value: scale the inputs up, use BF16, or keep the op in FP32."};

void find_flushed_activations(const RunFacts& facts, Findings& found) {
  const Suspects felt = flushed_values(facts, true);
  if (felt.empty()) return;
  const bool has_range = has_range_of_fp32(facts.selection.tensor(felt.worst_tensor()).dtype);
  found.add_judged(Severity::warning,
                   kActivationsFlushed({{"tensors", felt.size()}, {"norm", most_of_norm(facts, felt.extent().tensors)}}),
                   felt.worst(), (has_range ? kLargerInputsOrFp32 : kLargerInputsOrBf16)(), felt.extent());
}

}  // namespace

extern constinit const FindingRule range_activations_flushed{
    .code = "range.activations_flushed",
    .part = Part::ranges,
    .raised =
        "A forward value lost more than half of its nonzero elements to zero when it was rounded, and a part of its norm that may "
        "be felt.",
    .meaning = "What the loss is computed from is missing.",
    .help = "Larger inputs, BF16, or FP32 for the op.",
    .picture = Picture::flushed,
    .explains = {"run.no_better_than_guessing", "model.dead_output", "range.values_flushed"},
    .shown_by = "experiments/failures/activations_overflow_fp16.toml --set data.std=3e7",
    .find = find_flushed_activations,
};

}  // namespace ulpscope::findings
