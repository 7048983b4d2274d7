#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kFp8Flushed{"range.quantization_flushed", "{lost} to zero when quantised to FP8, and {norm}."};
constexpr Template kFp8Unfelt{"range.quantization_flushed.unfelt", "{lost} to zero when quantised to FP8, but {norm}."};
constexpr Template kSpreadOverBinades{"advice.values_spread_in_fp8",
                                      "Their values spread over more binades than FP8 has at one quantisation scale a tensor; a "
                                      "loss scale changes nothing."};
constexpr Template kKeepLayersInBf16{"advice.keep_layers_in_bf16", "Keep these layers in BF16{types:brackets}."};
constexpr Template kFewLargeValues{"advice.few_large_values_decide_scale",
                                   "A few large values, perhaps one, decide a tensor's quantisation scale."};
constexpr Template kKeepSmallInBf16{"advice.keep_small_values_in_bf16",
                                    "Where the small ones matter keep these layers in BF16{types:brackets}."};

void find_flushed_in_fp8(const RunFacts& facts, Findings& found) {
  // What keeps layers in BF16.
  const SettingMention types = facts.context.settings.name(SettingKind::precision_of_modules);
  if (const Suspects flushed = flushed_in_fp8(facts, facts.quantized().flushed); !flushed.empty()) {
    found.add_judged(Severity::warning,
                     kFp8Flushed({{"lost", lost_much(facts, flushed)}, {"norm", most_of_norm(facts, facts.quantized().flushed)}}),
                     flushed.worst(), Sentences{kSpreadOverBinades(), kKeepLayersInBf16({{"types", types}})}, flushed.extent());
  }
  if (const Suspects unfelt = flushed_in_fp8(facts, facts.quantized().flushed_unfelt); !unfelt.empty()) {
    found.add_judged(
        Severity::info,
        kFp8Unfelt({{"lost", lost_much(facts, unfelt)}, {"norm", little_of_norm(facts, facts.quantized().flushed_unfelt)}}),
        unfelt.worst(), Sentences{kFewLargeValues(), kKeepSmallInBf16({{"types", types}})}, unfelt.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_quantization_flushed{
    .code = "range.quantization_flushed",
    .part = Part::ranges,
    .raised = "Values became zero when they were rounded to FP8.",
    .meaning = "They are missing.",
    .help = "E5M2, which reaches lower, or a wider type.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/fp8_tails_flushed.toml",
    .find = find_flushed_in_fp8,
};

}  // namespace ulpscope::findings
