#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kThisTraceUnclosed{"recording.dead",
                                      "The program that wrote this trace ended without closing it; the {steps:count step} that "
                                      "it committed can be read."};
constexpr Template kTraceOfRankUnclosed{"recording.dead.rank",
                                        "The program that wrote the trace of rank {rank} ended without closing it; the "
                                        "{steps:count step} that it committed can be read."};
constexpr Template kTracesOfRanksUnclosed{"recording.dead.ranks",
                                          "The programs that wrote the traces of ranks {ranks:commas} ended without closing "
                                          "them; the {steps:count step} that they committed can be read."};

void find_dead_writer(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.writer_state() != WriterState::dead) return;
  Value::List dead;  // ranks
  uint64_t steps = 0;
  for (const int32_t rank : trace.ranks()) {
    const Snapshot of_rank = trace.of_rank(rank);
    // What ended early and says why is another finding.
    if (of_rank.writer_state() != WriterState::dead || !of_rank.closing_note().empty()) continue;
    dead.push_back(ordinal(rank));
    steps += of_rank.step_count();
  }
  if (dead.empty()) return;
  const bool is_one = trace.ranks().size() == 1;
  found.add(Severity::warning,
            is_one             ? kThisTraceUnclosed({{"steps", steps}})
            : dead.size() == 1 ? kTraceOfRankUnclosed({{"rank", dead.front()}, {"steps", steps}})
                               : kTracesOfRanksUnclosed({{"ranks", Value::list(dead)}, {"steps", steps}}),
            {}, kRecover());
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
