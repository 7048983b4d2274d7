#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStoppedEarly{"run.stopped", "Stopped early: {event}"};

void find_stopped(const RunFacts& facts, Findings& found) {
  for (const EventRow* event : ends(facts, EventKind::stopped))
    found.add(Severity::warning, kStoppedEarly({{"event", Name{NameKind::event, event->text}}}),
              {{facts.selection.key_of_step(event->step, event->rank), {}}});
}

}  // namespace

extern constinit const FindingRule run_stopped{
    .code = "run.stopped",
    .part = Part::recording,
    .raised = "The run was asked to stop at NaN, overflow or backoff, and did.",
    .meaning = "It ended early.",
    .is_about_run = false,
    .shown_by = "experiments/failures/nan_in_data.toml --stop-on nan",
    .find = find_stopped,
};

}  // namespace ulpscope::findings
