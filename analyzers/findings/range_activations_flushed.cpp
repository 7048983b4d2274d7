#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kActivationsFlushed{"range.activations_flushed",
                                       "{formats} underflow in the forward pass, in {tensors} of {all:count tensor}: {place} lost "
                                       "{flushed} of its nonzero elements to zero."};
constexpr Template kLargerInputsOrFp32{"advice.scale_inputs_or_fp32", "Scale the inputs up, or keep the op in FP32."};
constexpr Template kLargerInputsOrBf16{"advice.scale_inputs_or_bf16",
                                       "Scale the inputs up, use BF16{precision:brackets}, or keep the op in FP32."};
constexpr Template kScaleLeavesActivations{"advice.scale_leaves_activations", "Loss scaling does not affect forward values."};

void find_flushed_activations(const RunFacts& facts, Findings& found) {
  constexpr double kMost = 0.5;  // flushed_values
  const Suspects felt = flushed_values(facts, true);
  if (felt.empty()) return;
  const uint32_t worst = felt.worst_tensor();
  const SettingNames& settings = facts.context.settings;
  const std::vector<uint32_t> tensors = felt.extent().tensors;
  const RoundingBounds& seen = facts.ranges().find(worst)->judged.totals.seen;
  const Sentence larger_inputs =
      has_range_of_fp32(facts.selection.tensor(worst).dtype)
          ? kLargerInputsOrFp32()
          : kLargerInputsOrBf16({{"precision", settings.proposed(SettingKind::precision, settings.words().bf16)}});
  found.add_judged(Severity::warning,
                   {kActivationsFlushed({{"formats", formats_of(facts, tensors)},
                                         {"tensors", felt.size()},
                                         {"all", rounded_forward_values(facts)},
                                         {"place", tensor_place(facts, worst)},
                                         {"flushed", {share(seen.flushed.lower, seen.base), Unit::share}}}),
                    each_lost(felt.size(), kMost, most_of_norm(facts, tensors))},
                   felt.worst(), Sentences{larger_inputs, kScaleLeavesActivations()}, felt.extent());
}

}  // namespace

extern constinit const FindingRule range_activations_flushed{
    .code = "range.activations_flushed",
    .part = Part::ranges,
    .raised =
        "Underflow: rounding a value of the forward pass made more than half of its nonzero elements zero, and the lost part "
        "of its norm may exceed its rounding error.",
    .meaning = "The loss is computed without these values.",
    .help = "Scale the inputs up, use BF16, or keep the op in FP32.",
    .picture = Picture::flushed,
    .explains = {"run.no_better_than_guessing", "model.dead_output", "range.values_flushed"},
    .shown_by = "experiments/failures/activations_overflow_fp16.toml --set data.std=3e7",
    .find = find_flushed_activations,
};

}  // namespace ulpscope::findings
