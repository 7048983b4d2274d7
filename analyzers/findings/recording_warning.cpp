#include "ulpscope/analyzers/findings/recording_text.h"

namespace ulpscope::findings {

namespace {

void find_warnings(const RunFacts& facts, Findings& found) { tell_events(facts, EventKind::warning, Severity::warning, {}, found); }

}  // namespace

extern constinit const FindingRule recording_warning{
    .code = "recording.warning",
    .part = Part::recording,
    .raised =
        "The program that trained recorded a warning. It is a note where the run has a cause of its own, other than that it "
        "learned "
        "nothing.",
    .meaning = "A constant is another number in a format of the run, for example, or the data do not suit the loss function.",
    .help = "Do what the warning says.",
    .is_about_run = false,
    .shown_by = "experiments/failures/updates_lost_bf16.toml",
    .find = find_warnings,
};

}  // namespace ulpscope::findings
