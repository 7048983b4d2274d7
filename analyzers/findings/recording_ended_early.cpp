#include <fmt/format.h>

#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

void find_ended_early(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const std::vector<int32_t> ranks = trace.ranks();
  for (const int32_t rank : ranks) {
    const Snapshot of_rank = trace.of_rank(rank);
    if (of_rank.closing_note().empty()) continue;
    found.add(Severity::warning,
              fmt::format("The trace{} ends early: {}", ranks.size() == 1 ? "" : fmt::format(" of rank {}", rank),
                          of_rank.closing_note()),
              {}, of_rank.writer_state() == WriterState::dead ? kRecover : "");
  }
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
