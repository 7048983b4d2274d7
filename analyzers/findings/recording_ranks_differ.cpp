#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kRanksDiffer{"recording.ranks_differ", "The ranks end in different steps: {notes}."};
constexpr Template kNoteAndMore{"recording.rank_note_and_more", "{event}; {more}"};
constexpr Template kShorterLeftOut{"advice.shorter_ranks_left_out", "Find out why the programs of the shorter ranks stopped."};

void find_differing_ranks(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  const std::vector<std::string> notes = trace.rank_notes();
  if (notes.empty()) return;
  const bool is_alive = trace.writer_state() == WriterState::alive;
  Value words;
  for (size_t i = notes.size(); i-- > 0;) {
    const Name event{NameKind::event, notes[i]};
    words = words.empty() ? Value(event) : kNoteAndMore({{"event", event}, {"more", words}});
  }
  found.add(is_alive ? Severity::info : Severity::warning, kRanksDiffer({{"notes", words}}), {},
            is_alive ? Sentence() : kShorterLeftOut());
}

}  // namespace

extern constinit const FindingRule recording_ranks_differ{
    .code = "recording.ranks_differ",
    .part = Part::recording,
    .raised = "The traces of a run's ranks end in different steps. A note while they are still written.",
    .meaning = "Findings on the last steps do not cover the shorter ranks.",
    .help = "Find out why the programs of these ranks stopped.",
    .is_about_run = false,
    .find = find_differing_ranks,
};

}  // namespace ulpscope::findings
