#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSentToOneSide{
    "updates.biased",
    "{parameters:count parameter} rounded updates to a side that does not depend on their size: some changed nothing, the others "
    "changed the weight by more than they were."};
constexpr Template kSignDecides{
    "advice.sign_decides_update",
    "What an update below an ulp does then depends on its sign, in mode ro on the last bit of the weight, and not on its size, "
    "so that errors add up."};
constexpr Template kRoundStochastically{
    "advice.round_update_stochastically",
    "Round the update stochastically{rounding:brackets}, or keep FP32 master weights; to nearest, what is below half an ulp "
    "would be lost instead."};

void find_biased(const RunFacts& facts, Findings& found) {
  Advice advice;
  advice.text = {kSignDecides(), kRoundStochastically({{"rounding", facts.context.settings.name(SettingKind::rounding)}})};
  advice.note({.kind = SettingKind::arithmetic_of_ops, .value = std::string(facts.context.settings.words().stochastic_updates)});
  advice.note({.kind = SettingKind::master_weights, .value = std::string(facts.context.settings.words().on)});
  tell_lost_updates(facts, SmallUpdates::directed, 0, Severity::warning, kSentToOneSide, advice, found);
}

}  // namespace

extern constinit const FindingRule updates_biased{
    .code = "updates.biased",
    .part = Part::updates,
    .raised = "The rounding mode of the weights sends updates below an ulp to one side.",
    .meaning = "Errors add up.",
    .help = "Stochastic rounding, or FP32 master weights.",
    .shown_by = "experiments/failures/updates_lost_bf16.toml --set optimizer.math=fp32 --set arithmetic.rounding=rz",
    .find = find_biased,
};

}  // namespace ulpscope::findings
