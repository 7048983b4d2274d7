#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/quantization_text.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStaleScale{"range.quantization_stale",
                               "{lost} to zero when quantised to FP8, and {norm}: their quantisation scale was far below what "
                               "their largest magnitude asked for."};
constexpr Template kScaleOfHistory{"advice.scale_of_history",
                                   "A scale that follows from earlier steps is as small as the largest magnitude of its history, "
                                   "perhaps one outlier, makes it."};
constexpr Template kOwnScaleOrShorterHistory{"advice.own_scale_or_shorter_history",
                                             "One from the tensor itself{recipe:brackets} follows the values of each step; a "
                                             "shorter history{history:brackets} forgets sooner."};
constexpr Template kSmallerMargin{"advice.smaller_margin", "A smaller margin{margin:brackets} takes all of them further up."};

void find_stale(const RunFacts& facts, Findings& found) {
  const std::vector<uint32_t>& tensors = facts.quantized().stale;
  if (tensors.empty()) return;
  const bool lost_most = std::any_of(tensors.begin(), tensors.end(), [&](uint32_t i) {
    const RoundingBounds& seen = facts.ranges().find(i)->judged.scaled.seen;
    return share(seen.flushed.lower, seen.base) > 0.5;
  });
  const Suspects stale = flushed_in_fp8(facts, tensors, true);
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  // A shorter history is tried first.
  const Setting history = advice.lower(settings.now(SettingKind::quantization_history));
  const Setting recipe = advice.set(settings.now(SettingKind::quantization_recipe), std::string(settings.words().current_scaling));
  advice.text = {kScaleOfHistory(), kOwnScaleOrShorterHistory({{"recipe", recipe}, {"history", history}})};
  if (settings.number(SettingKind::quantization_margin).value_or(0) > 0)
    advice.text += kSmallerMargin({{"margin", advice.lower(settings.now(SettingKind::quantization_margin))}});
  found.add_judged(lost_most ? Severity::error : Severity::warning,
                   kStaleScale({{"lost", lost_much(facts, stale)}, {"norm", most_of_norm(facts, tensors)}}), stale.worst(),
                   std::move(advice), stale.extent());
}

}  // namespace

extern constinit const FindingRule range_quantization_stale{
    .code = "range.quantization_stale",
    .part = Part::ranges,
    .raised = "A scale of delayed FP8 scaling came from a history that no longer held.",
    .meaning = "Values were beyond the range, or far below it.",
    .help = "A margin, a shorter history, or current scaling.",
    .explains = {"range.quantization_saturated", "range.quantization_flushed", "run.no_better_than_guessing", "run.loss_rose",
                 "run.loss_stayed"},
    .shown_by = "experiments/failures/fp8_stale_scale.toml",
    .find = find_stale,
};

}  // namespace ulpscope::findings
