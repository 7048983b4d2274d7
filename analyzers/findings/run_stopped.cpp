#include <string>
#include <string_view>
#include <utility>

#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStoppedEarly{"run.stopped", "Training stopped early: {event}."};

// As the engine begins what it records of this.
constexpr std::string_view kSaidAlready = "training stopped: ";

Name reason(std::string text) {
  if (text.starts_with(kSaidAlready)) text.erase(0, kSaidAlready.size());
  return event_name(std::move(text));
}

void find_stopped(const RunFacts& facts, Findings& found) {
  for (const EventRow* event : ends(facts, EventKind::stopped))
    found.add(Severity::warning, kStoppedEarly({{"event", reason(event->text)}}),
              {{facts.selection.key_of_step(event->step, event->rank), {}}});
}

}  // namespace

extern constinit const FindingRule run_stopped{
    .code = "run.stopped",
    .part = Part::recording,
    .raised = "Training was interrupted, or stopped at NaN, an overflow or a backoff as it was asked to.",
    .meaning = "The run ended before its last step.",
    .is_about_run = false,
    .shown_by = "experiments/failures/nan_in_data.toml --stop-on nan",
    .find = find_stopped,
};

}  // namespace ulpscope::findings
