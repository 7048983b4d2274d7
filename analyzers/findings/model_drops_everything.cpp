#include <fmt/format.h>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/silent_outputs.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_dropped(const RunFacts& facts, Findings& found) {
  const Suspects dropped = silent_suspects(facts, facts.silent().dropped);
  if (dropped.empty()) return;
  found.add_judged(Severity::error,
                   fmt::format("{} set every element to zero in every training step: nothing that lies before learns through it.",
                               dropped.size() == 1 ? "A dropout" : count_of(dropped.size(), "dropout")),
                   dropped.worst(), "Drop a smaller share: one of 1 drops everything.", dropped.extent());
}

}  // namespace

extern constinit const FindingRule model_drops_everything{
    .code = "model.drops_everything",
    .part = Part::ranges,
    .raised = "A dropout set every element of its output to zero in every training step that was recorded.",
    .meaning = "Nothing that lies before it learns.",
    .help = "Lower the share that is dropped: 1 drops everything.",
    .explains = {"model.dead_output", "updates.none_applied", "run.no_better_than_guessing", "run.loss_stayed"},
    .shown_by = "experiments/failures/dropout_of_everything.toml",
    .find_start = find_dropped,
};

}  // namespace ulpscope::findings
