#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoSteps{"run.no_steps", "No step was recorded: the trace tells nothing of the run."};
constexpr Template kRecordWholeSteps{"advice.record_whole_steps",
                                     "Record the code that runs the model: a step begins with an op that is seen, or with a loss."};

void find_no_steps(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.step_count() > 0 || trace.writer_state() == WriterState::alive) return;
  found.add(Severity::error, kNoSteps(), {}, kRecordWholeSteps());
}

}  // namespace

extern constinit const FindingRule run_no_steps{
    .code = "run.no_steps",
    .part = Part::run,
    .raised = "The trace of a run that has ended has no step.",
    .meaning = "Nothing was checked.",
    .help = "Check that the model runs while it is recorded.",
    .find = find_no_steps,
};

}  // namespace ulpscope::findings
