#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kThisTraceUnclosed{"recording.dead",
                                      "The trace ends after {steps:count step}: its program ended without closing it."};
constexpr Template kTraceOfRankUnclosed{"recording.dead.rank",
                                        "The trace of rank {rank} ends after {steps:count step}: its program ended without "
                                        "closing it."};
constexpr Template kTracesOfRanksUnclosed{"recording.dead.ranks",
                                          "The traces of ranks {ranks:commas} end after {steps:count step} in all: their "
                                          "programs ended without closing them."};

void find_dead_writer(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (trace.writer_state() != WriterState::dead) return;
  Value::List dead;  // ranks
  std::string path;  // of the first of them
  uint64_t steps = 0;
  for (const int32_t rank : trace.ranks()) {
    const Snapshot of_rank = trace.of_rank(rank);
    // What ended early and says why is another finding.
    if (of_rank.writer_state() != WriterState::dead || !of_rank.closing_note().empty()) continue;
    if (dead.empty()) path = of_rank.parts().back().path;
    dead.push_back(ordinal(rank));
    steps += of_rank.step_count();
  }
  if (dead.empty()) return;
  const bool is_one = trace.ranks().size() == 1;
  found.add(Severity::warning,
            is_one             ? kThisTraceUnclosed({{"steps", steps}})
            : dead.size() == 1 ? kTraceOfRankUnclosed({{"rank", dead.front()}, {"steps", steps}})
                               : kTracesOfRanksUnclosed({{"ranks", Value::list(dead)}, {"steps", steps}}),
            {}, recover(path));
}

}  // namespace

extern constinit const FindingRule recording_dead{
    .code = "recording.dead",
    .part = Part::recording,
    .raised = "The program that wrote the trace ended without closing it.",
    .meaning = "The steps that it committed can be read; later ones are lost.",
    .help = "`ulpscope recover` copies the committed steps into a closed trace.",
    .is_about_run = false,
    .find = find_dead_writer,
};

}  // namespace ulpscope::findings
