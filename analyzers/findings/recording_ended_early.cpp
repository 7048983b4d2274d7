#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"

namespace ulpscope::findings {

namespace {

void find_ended_early(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.closing_note().empty()) return;
  found.add(Severity::warning, "The trace ends early: " + trace.closing_note(), {},
            trace.writer_state() == WriterState::dead ? kRecover : "");
}

}  // namespace

extern constinit const FindingRule recording_ended_early{
    .code = "recording.ended_early",
    .part = Part::recording,
    .raised = "The trace says why it ends early.",
    .meaning = "Later steps are not in it.",
    .is_about_run = false,
    .find = find_ended_early,
};

}  // namespace ulpscope::findings
