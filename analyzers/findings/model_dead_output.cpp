#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_dead_outputs(const RunFacts& facts, Findings& found) {
  const Suspects dead = silent_suspects(facts, facts.silent().dead);
  if (dead.empty()) return;
  const std::string which = dead.size() == 1 ? dead.worst().front().key.name : count_of(dead.size(), "activation");
  Advice advice =
      "Look at the sign of what goes in: a bias far below zero, or an update that threw it there, leaves a relu nothing to "
      "pass on; a smaller learning rate keeps it alive.";
  advice.note({.kind = SettingKind::learning_rate, .way = SettingChange::Way::lower});
  // Where the loss sees nothing of the batch but through them, the run is broken.
  found.add_judged(
      facts.silent().loss_sees_nothing ? Severity::error : Severity::warning,
      fmt::format("{} gave nothing but zeros{} from step {} to the end, though what went in was not zero, and no rounding "
                  "made it so: nothing before it learns through it.",
                  which, dead.size() == 1 ? "" : ", the first", *dead.extent().first_step),
      dead.worst(), std::move(advice), dead.extent());
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
