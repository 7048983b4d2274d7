#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSentToOneSide{
    "updates.biased",
    "The rounding mode biases small updates of {parameters:count parameter} (worst: `{worst}`, {worst_share} lost)."};
constexpr Template kLostOrWholeUlp{"updates.biased.lost_or_whole_ulp",
                                   "Below one ulp an update is lost or becomes a whole ulp, whatever its size, so errors add up."};
constexpr Template kRoundStochastically{"advice.round_update_stochastically",
                                        "Round updates stochastically{rounding:brackets}, or use FP32 master "
                                        "weights{masters:brackets}."};
constexpr Template kNearestLoses{"advice.nearest_loses_small_updates",
                                 "Rounding to nearest would lose updates below half an ulp instead."};

Sentences biased_title(const RunFacts& facts, std::span<const UpdateJudgement::Lost> lost) {
  return {kSentToOneSide({{"parameters", lost.size()},
                          {"worst", parameter_name(facts.selection, lost.front().weight->tensor)},
                          {"worst_share", {lost.front().share, Unit::share}}}),
          kLostOrWholeUlp()};
}

void find_biased(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  advice.note({.kind = SettingKind::arithmetic_of_ops, .value = std::string(settings.words().stochastic_updates)});
  const Setting masters = advice.set(settings.switched(SettingKind::master_weights, true));
  advice.text = {kRoundStochastically({{"rounding", settings.now(SettingKind::rounding)}, {"masters", masters}}), kNearestLoses()};
  tell_lost_updates(
      facts, SmallUpdates::directed, 0, Severity::warning, [&](const auto& lost) { return biased_title(facts, lost); }, advice,
      found);
}

}  // namespace

extern constinit const FindingRule updates_biased{
    .code = "updates.biased",
    .part = Part::updates,
    .raised = "The weights' rounding mode loses updates below an ulp, or makes a whole ulp of them, whatever their size.",
    .meaning = "Rounding errors of the updates do not average out: they add up.",
    .help = "Stochastic rounding, or FP32 master weights.",
    .shown_by = "experiments/failures/updates_lost_bf16.toml --set optimizer.math=fp32 --set arithmetic.rounding=rz",
    .find = find_biased,
};

}  // namespace ulpscope::findings
