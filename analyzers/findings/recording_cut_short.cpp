#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kCutShort{"recording.cut_short", "The recording was cut short: {event}."};
constexpr Template kTrainingWentOn{"advice.training_went_on", "Training went on."};
constexpr Template kKeepWholeRun{"advice.keep_whole_run",
                                 "To record all of it, raise the size limit{limit:brackets}, or record fewer modules or "
                                 "histograms in fewer steps{interval:brackets}."};

void find_cut_short(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  for (const EventRow* event : ends(facts, EventKind::cut_short))
    found.add(Severity::warning, kCutShort({{"event", event_name(event->text)}}),
              {{facts.selection.key_of_step(event->step, event->rank), {}}},
              Sentences{kTrainingWentOn(), kKeepWholeRun({{"limit", settings.now(SettingKind::recording_limit)},
                                                          {"interval", settings.now(SettingKind::recording_interval)}})});
}

}  // namespace

extern constinit const FindingRule recording_cut_short{
    .code = "recording.cut_short",
    .part = Part::recording,
    .raised = "The recording ended before the run did.",
    .meaning = "The trace has no tensor rows, or no steps, from there on.",
    .help = "Raise the size limit of the trace, or record fewer modules, or histograms in fewer steps.",
    .is_about_run = false,
    .shown_by = "mlp --precision fp16 --steps 300 --max-size 2MB",
    .find = find_cut_short,
};

}  // namespace ulpscope::findings
