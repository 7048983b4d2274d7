#include "ulpscope/analyzers/findings/recording_text.h"

namespace ulpscope::findings {

namespace {

void find_notes(const RunFacts& facts, Findings& found) { tell_events(facts, EventKind::note, Severity::info, {}, found); }

}  // namespace

extern constinit const FindingRule recording_note{
    .code = "recording.note",
    .part = Part::recording,
    .raised = "The program that trained recorded a note.",
    .is_about_run = false,
    .shown_by = "experiments/failures/loss_scale_too_large.toml",
    .find = find_notes,
};

}  // namespace ulpscope::findings
