#include "ulpscope/analyzers/findings/recording_text.h"

namespace ulpscope::findings {

namespace {

void find_warnings(const RunFacts& facts, Findings& found) { tell_events(facts, EventKind::warning, Severity::warning, "", found); }

}  // namespace

extern constinit const FindingRule recording_warning{
    .code = "recording.warning",
    .part = Part::recording,
    .raised = "The program warned of something.",
    .is_about_run = false,
    .find = find_warnings,
};

}  // namespace ulpscope::findings
