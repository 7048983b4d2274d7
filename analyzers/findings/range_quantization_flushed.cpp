#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kFp8Flushed{
    "range.quantization_flushed",
    "FP8 underflow in {tensors} of {all:count FP8 tensor}: {place} lost {flushed} of its nonzero elements to "
    "zero in {format}."};
constexpr Template kSpreadOverBinades{"advice.values_spread_in_fp8",
                                      "Its values span more binades than FP8 holds at one scale per tensor."};
constexpr Template kScaleLeavesFp8{"advice.scale_leaves_fp8", "Loss scaling does not help: FP8 tensors have scales of their own."};
constexpr Template kKeepLayersInBf16{"advice.keep_layers_in_bf16", "Keep these layers in BF16{types:brackets}."};
constexpr Template kFewLargeValues{"advice.few_large_values_decide_scale", "A few large values set the scale of a tensor."};
constexpr Template kKeepSmallInBf16{"advice.keep_small_values_in_bf16",
                                    "If the small values matter, keep these layers in BF16{types:brackets}."};

Sentences flushed_title(const RunFacts& facts, const Suspects& suspects, Sentence norm) {
  const uint32_t worst = suspects.worst_tensor();
  return {kFp8Flushed({{"tensors", suspects.size()},
                       {"all", quantized_tensors(facts)},
                       {"place", tensor_place(facts, worst)},
                       {"flushed", flushed_of(facts, worst)},
                       {"format", format_name(*info(facts.selection.tensor(worst).dtype).format)}}),
          each_lost(suspects.size(), facts.context.options.flushed_limit, std::move(norm))};
}

void find_flushed_in_fp8(const RunFacts& facts, Findings& found) {
  // What keeps layers in BF16.
  const SettingMention types = facts.context.settings.name(SettingKind::precision_of_modules);
  const std::vector<uint32_t>&tensors = facts.quantized().flushed, &unfelt_tensors = facts.quantized().flushed_unfelt;
  if (const Suspects flushed = flushed_in_fp8(facts, tensors); !flushed.empty()) {
    found.add_judged(Severity::warning, flushed_title(facts, flushed, most_of_norm(facts, tensors)) + kSpreadOverBinades(),
                     flushed.worst(), Sentences{kKeepLayersInBf16({{"types", types}}), kScaleLeavesFp8()}, flushed.extent());
  }
  if (const Suspects unfelt = flushed_in_fp8(facts, unfelt_tensors); !unfelt.empty()) {
    found.add_judged(Severity::info, flushed_title(facts, unfelt, little_of_norm(facts, unfelt_tensors)) + kFewLargeValues(),
                     unfelt.worst(), kKeepSmallInBf16({{"types", types}}), unfelt.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_quantization_flushed{
    .code = "range.quantization_flushed",
    .part = Part::ranges,
    .raised = "Underflow in FP8: more than 1% of a tensor's nonzero elements became zero at its quantization scale.",
    .meaning = "A warning where the lost part of the norm may exceed FP8's rounding error, and a note where it does not.",
    .help = "Keep these layers in BF16, or use E5M2 for them, which reaches lower than E4M3.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/fp8_tails_flushed.toml",
    .find = find_flushed_in_fp8,
};

}  // namespace ulpscope::findings
