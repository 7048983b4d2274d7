#include <fmt/format.h>

#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

void find_dead_writer(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.writer_state() != WriterState::dead) return;
  std::vector<int32_t> dead;
  uint64_t steps = 0;
  for (const int32_t rank : trace.ranks()) {
    const Snapshot of_rank = trace.of_rank(rank);
    // What ended early and says why is another finding.
    if (of_rank.writer_state() != WriterState::dead || !of_rank.closing_note().empty()) continue;
    dead.push_back(rank);
    steps += of_rank.step_count();
  }
  if (dead.empty()) return;
  const bool is_one = trace.ranks().size() == 1;
  found.add(Severity::warning,
            fmt::format("The program{} that wrote {} ended without closing {}; the {} that {} committed can be read.",
                        dead.size() == 1 ? "" : "s",
                        is_one ? "this trace"
                               : fmt::format("the trace{} of rank{} {}", dead.size() == 1 ? "" : "s", dead.size() == 1 ? "" : "s",
                                             fmt::join(dead, ", ")),
                        dead.size() == 1 ? "it" : "them", count_of(steps, "step"), dead.size() == 1 ? "it" : "they"),
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
