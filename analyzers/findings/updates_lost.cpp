#include <fmt/format.h>

#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

std::string stochastic_rounding(const SettingNames& settings, Advice& advice) {
  const std::string ops = advice.set(settings.name(SettingKind::arithmetic_of_ops), kStochasticUpdates);
  if (ops.empty()) return "";
  const std::string math = settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\"");
  return ops + " of the update" + (math.empty() ? "" : ", with " + math);
}

void find_lost(const RunFacts& facts, Findings& found) {
  if (facts.updates().none_applied()) return;  // which is said already
  const Advice why = why_updates_are_short(facts);
  const std::string lost =
      fmt::format("lost more than {:g}% of the nonzero updates: they were too small to change the weight.", 100 * kLostLimit);
  const SettingChange faster{.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise};
  Advice narrow = why;
  narrow.note({.kind = SettingKind::master_weights, .value = "true"});
  narrow += fmt::format(
      "Keep FP32 master weights, round the update stochastically{}, or raise the learning rate: an update below half an ulp of the "
      "weight is rounded away.",
      in_brackets({stochastic_rounding(facts.context.settings, narrow)}));
  narrow.note(faster);
  tell_lost_updates(facts, SmallUpdates::nearest, kLostLimit, Severity::warning, lost, narrow, found);
  Advice wide = why;
  wide += "An update below half an ulp of an FP32 weight, 2^-25 to 2^-24 of its magnitude, is rounded away, in every rounding mode";
  if (why.text.empty()) {
    wide += fmt::format(": raise the learning rate{}, or make the weights smaller (initial values, weight decay)",
                        in_brackets({facts.context.settings.only_now(SettingKind::learning_rate)}));
    wide.note(faster);
    wide.note({.kind = SettingKind::weight_decay, .way = SettingChange::Way::raise});
  }
  wide += ".";
  tell_lost_updates(facts, SmallUpdates::fp32, kLostLimit, Severity::warning, lost, wide, found);
  tell_lost_updates(facts, SmallUpdates::stochastic, kLostLimit, Severity::info,
                    fmt::format("kept the weight unchanged in more than {:g}% of the nonzero updates, as stochastic rounding does "
                                "with updates below an ulp: one of a tenth of an ulp changes the weight by an ulp one time in ten. "
                                "On average nothing is lost.",
                                100 * kLostLimit),
                    "", found);
}

}  // namespace

extern constinit const FindingRule updates_lost{
    .code = "updates.lost",
    .part = Part::updates,
    .raised = "Updates were too small to change the stored weight.",
    .meaning = "The weights learn less than the optimizer asked for.",
    .help = "FP32 master weights, stochastic rounding, or a larger learning rate.",
    .explains = {"updates.decay_lost", "run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/updates_lost_bf16.toml",
    .find = find_lost,
};

}  // namespace ulpscope::findings
