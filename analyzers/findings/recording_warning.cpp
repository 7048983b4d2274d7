#include "ulpscope/analyzers/findings/recording_text.h"

namespace ulpscope::findings {

namespace {

void find_warnings(const RunFacts& facts, Findings& found) { tell_events(facts, EventKind::warning, Severity::warning, {}, found); }

}  // namespace

extern constinit const FindingRule recording_warning{
    .code = "recording.warning",
    .part = Part::recording,
    .raised = "The program warned of something: a note where something above a note was found in the run.",
    .meaning = "A constant means something else in a format of the run, or data are not what the loss function is of.",
    .help = "As the warning says.",
    .is_about_run = false,
    .shown_by = "experiments/failures/updates_lost_bf16.toml",
    .find = find_warnings,
};

}  // namespace ulpscope::findings
