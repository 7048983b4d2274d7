#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

void find_flushed_in_fp8(const RunFacts& facts, Findings& found) {
  // What keeps layers in BF16.
  const std::string types = in_brackets({facts.context.settings.name(SettingKind::precision_of_modules)});
  if (const Suspects flushed = flushed_in_fp8(facts, facts.quantized().flushed); !flushed.empty()) {
    found.add_judged(
        Severity::warning,
        fmt::format("{} to zero when quantised to FP8, and {}.", lost_much(facts, flushed),
                    most_of_norm(facts, facts.quantized().flushed)),
        flushed.worst(),
        fmt::format("Their values spread over more binades than FP8 has at one quantisation scale a tensor; a loss scale "
                    "changes nothing. Keep these layers in BF16{}.",
                    types),
        flushed.extent());
  }
  if (const Suspects unfelt = flushed_in_fp8(facts, facts.quantized().flushed_unfelt); !unfelt.empty()) {
    found.add_judged(
        Severity::info,
        fmt::format("{} to zero when quantised to FP8, but {}.", lost_much(facts, unfelt),
                    little_of_norm(facts, facts.quantized().flushed_unfelt)),
        unfelt.worst(),
        fmt::format("A few large values, perhaps one, decide a tensor's quantisation scale. Where the small ones matter keep "
                    "these layers in BF16{}.",
                    types),
        unfelt.extent());
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
