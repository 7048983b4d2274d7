#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kEndsEarly{"recording.ended_early", "The trace ends early: {event}."};
constexpr Template kEndsEarlyOfRank{"recording.ended_early.rank", "The trace of rank {rank} ends early: {event}."};

void find_ended_early(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const std::vector<int32_t> ranks = trace.ranks();
  for (const int32_t rank : ranks) {
    const Snapshot of_rank = trace.of_rank(rank);
    if (of_rank.closing_note().empty()) continue;
    const Name event = event_name(of_rank.closing_note());
    found.add(Severity::warning,
              ranks.size() == 1 ? kEndsEarly({{"event", event}}) : kEndsEarlyOfRank({{"rank", ordinal(rank)}, {"event", event}}),
              {}, of_rank.writer_state() == WriterState::dead ? recover(of_rank.parts().back().path) : Sentence());
  }
}

}  // namespace

extern constinit const FindingRule recording_ended_early{
    .code = "recording.ended_early",
    .part = Part::recording,
    .raised = "The trace ends early and says why, as where its disk was full.",
    .meaning = "Later steps are not in it.",
    .is_about_run = false,
    .find = find_ended_early,
};

}  // namespace ulpscope::findings
