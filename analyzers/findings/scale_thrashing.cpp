#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kScaleThrashes{"scale.thrashing",
                                  "The loss scale oscillates: {skipped} of {steps} steps ({share}) were skipped{search}."};
constexpr Template kAfterSearch{"scale.thrashing.after_search", " after its initial descent"};
constexpr Template kGrowsUntil{"scale.thrashing.mechanism", "It {grows} after every {interval}{setting:brackets} until {event}."};
constexpr Template kDoubles{"scale.doubles", "doubles"};
constexpr Template kGrowsBy{"scale.grows_by", "grows {factor}"};
constexpr Template kCleanStep{"scale.clean_step", "clean step"};
constexpr Template kCleanSteps{"scale.clean_steps", "{steps:count clean step}"};
constexpr Template kParameterOverflows{"scale.parameter_overflows", "`{parameter}`'s gradient overflows"};
constexpr Template kMostlyParameter{"scale.mostly_parameter_overflows", "a gradient overflows, mostly `{parameter}`'s"};
constexpr Template kTensorOverflows{"scale.tensor_overflows", "{tensor} overflows"};
constexpr Template kMostlyTensor{"scale.mostly_tensor_overflows", "a gradient overflows, mostly {tensor}"};
constexpr Template kGradientOverflows{"scale.gradient_overflows", "a gradient overflows"};
constexpr Template kStepIsSkipped{"scale.step_is_skipped", "a step is skipped"};

// Its roundings overflow at a scale that the run had.
bool overflows_when_scaled(const RunFacts& facts, uint32_t tensor) {
  const auto& fit = facts.fitting().tensors[tensor];
  return is_gradient(facts.selection.tensor(tensor).role) && fit && fit->largest &&
         fit->largest->upper < std::log2(facts.steps().highest_scale);
}

// What ends a growth, as far as it is known to: a phrase.
Sentence end_of_growth(const RunFacts& facts) {
  const std::vector<ScaleJudgement::Blamed>& blamed = facts.scale().blamed();
  const bool overflow = std::all_of(blamed.begin(), blamed.end(),
                                    [&](const ScaleJudgement::Blamed& each) { return overflows_when_scaled(facts, each.tensor); });
  if (blamed.empty() || !overflow) return kStepIsSkipped();
  const auto& [tensor, skipped] = blamed.front();
  const bool is_only = blamed.size() == 1;
  if (!is_only && 2 * skipped <= facts.steps().skipped.size()) return kGradientOverflows();
  if (is_gradient_of_parameters(facts.selection.tensor(tensor).role))
    return (is_only ? kParameterOverflows : kMostlyParameter)({{"parameter", parameter_name(facts.selection, tensor)}});
  return (is_only ? kTensorOverflows : kMostlyTensor)({{"tensor", tensor_place(facts.selection, tensor)}});
}

// Nothing where the trace does not have the scaler's rule.
Sentence growth_until_overflow(const RunFacts& facts) {
  const RunInfo& run = facts.context.trace.run();
  if (run.growth_interval <= 0 || !(run.growth_factor > 1)) return {};
  return kGrowsUntil({{"grows", run.growth_factor == 2 ? kDoubles() : kGrowsBy({{"factor", {run.growth_factor, Unit::ratio}}})},
                      {"interval", run.growth_interval == 1 ? kCleanStep() : kCleanSteps({{"steps", run.growth_interval}})},
                      {"setting", facts.context.settings.with_value(SettingKind::scale_growth_interval)},
                      {"event", end_of_growth(facts)}});
}

void find_thrashing(const RunFacts& facts, Findings& found) {
  const ScaleJudgement& scale = facts.scale();
  if (scale.scaling != LossScaling::scaled || scale.collapsed() || facts.broke() || !scale.is_thrashing()) return;
  const StepTotals& steps = facts.steps();
  const auto grown = std::find_if(steps.changes.begin(), steps.changes.end(),
                                  [](const ScaleChange& change) { return change.after > change.before; });
  const auto skipped = std::find_if(grown, steps.changes.end(), [](const ScaleChange& change) { return change.skipped; });
  const Sentence steep = steep_growth(facts);
  const uint64_t skips = steps.skipped.size() - steps.leading_skips, of = steps.count - steps.leading_skips;
  Sentences title = kScaleThrashes({{"skipped", skips},
                                    {"steps", of},
                                    {"share", share_value(skips, of)},
                                    {"search", steps.leading_skips > 0 ? Value(kAfterSearch()) : Value()}});
  title += steep.empty() ? growth_until_overflow(facts) : steep;
  found.add(Severity::warning, std::move(title), blame_evidence(facts),
            steep.empty() ? grow_less_often(facts) : grow_by_less(facts),
            {.first_step = skipped->step, .steps = skips, .value = skipped_steps(skips)});
}

}  // namespace

extern constinit const FindingRule scale_thrashing{
    .code = "scale.thrashing",
    .part = Part::scale,
    .raised = "More than 10% of the steps were skipped because the loss scale had grown.",
    .meaning = "Skipped steps update no weight.",
    .help = "A longer growth interval, or a cap on the loss scale.",
    .explains = {"scale.backoffs", "scale.above_100000"},
    .shown_by = "experiments/failures/scaler_thrashes.toml",
    .find = find_thrashing,
};

}  // namespace ulpscope::findings
