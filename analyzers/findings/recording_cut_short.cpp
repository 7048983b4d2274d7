#include <fmt/format.h>

#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

void find_cut_short(const RunFacts& facts, Findings& found) {
  for (const EventRow* event : ends(facts, EventKind::cut_short))
    found.add(Severity::warning, fmt::format("Recording was cut short: {}.", event->text),
              {{facts.selection.key_of_step(event->step, event->rank), {}}},
              fmt::format("Training went on. A larger limit{}, histograms in fewer steps{} or fewer modules keep the whole run.",
                          in_brackets({facts.context.settings.now(SettingKind::recording_limit)}),
                          in_brackets({facts.context.settings.now(SettingKind::recording_interval)})));
}

}  // namespace

extern constinit const FindingRule recording_cut_short{
    .code = "recording.cut_short",
    .part = Part::recording,
    .raised = "Recording ended before the run did.",
    .meaning = "Later steps are not in the trace.",
    .is_about_run = false,
    .shown_by = "mlp --precision fp16 --steps 300 --max-size 2MB",
    .find = find_cut_short,
};

}  // namespace ulpscope::findings
