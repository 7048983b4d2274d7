#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kDeadOutput{"model.dead_output",
                               "{activation} gave nothing but zeros from step {step} to the end, though what went in was not "
                               "zero, and no rounding made it so: nothing before it learns through it."};
constexpr Template kDeadOutputs{"model.dead_output.several",
                                "{activations:count activation} gave nothing but zeros, the first from step {step} to the end, "
                                "though what went in was not zero, and no rounding made it so: nothing before it learns through "
                                "it."};
constexpr Template kLookAtSign{"advice.look_at_sign_of_inputs",
                               "Look at the sign of what goes in: a bias far below zero, or an update that threw it there, "
                               "leaves a relu nothing to pass on; a smaller learning rate keeps it alive."};

void find_dead_outputs(const RunFacts& facts, Findings& found) {
  const Suspects dead = silent_suspects(facts, facts.silent().dead);
  if (dead.empty()) return;
  const Value step = ordinal(*dead.extent().first_step);
  Sentence title = dead.size() == 1
                       ? kDeadOutput({{"activation", Name{NameKind::tensor, dead.worst().front().key.name}}, {"step", step}})
                       : kDeadOutputs({{"activations", dead.size()}, {"step", step}});
  Advice advice = kLookAtSign();
  advice.note({.kind = SettingKind::learning_rate, .way = SettingChange::Way::lower});
  // Where the loss sees nothing of the batch but through them, the run is broken.
  found.add_judged(facts.silent().loss_sees_nothing ? Severity::error : Severity::warning, std::move(title), dead.worst(),
                   std::move(advice), dead.extent());
}

}  // namespace

extern constinit const FindingRule model_dead_output{
    .code = "model.dead_output",
    .part = Part::ranges,
    .raised = "An activation function gave nothing but zeros for ten rows or more, to the end, for inputs that were not zero.",
    .meaning = "What lies before it gets no gradient, and does not learn.",
    .help =
        "Look at the sign of what goes in: a bias far below zero, or a learning rate that threw it there, leaves a relu nothing.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/dead_relu.toml",
    .find_start = find_dead_outputs,
};

}  // namespace ulpscope::findings
