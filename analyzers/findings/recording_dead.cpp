#include <fmt/format.h>

#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_dead_writer(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.writer_state() != WriterState::dead || !trace.closing_note().empty()) return;
  found.add(Severity::warning,
            fmt::format("The program that wrote this trace ended without closing it; the {} that it committed can be read.",
                        count_of(trace.step_count(), "step")),
            {}, kRecover);
}

}  // namespace

extern constinit const FindingRule recording_dead{
    .code = "recording.dead",
    .part = Part::recording,
    .raised = "The program that wrote the trace ended without closing it.",
    .meaning = "What it committed can be read.",
    .help = "`ulpscope recover`.",
    .is_about_run = false,
    .find = find_dead_writer,
};

}  // namespace ulpscope::findings
