#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kCutShort{"recording.cut_short", "Recording was cut short: {event}."};
constexpr Template kTrainingWentOn{"advice.training_went_on", "Training went on."};
constexpr Template kKeepWholeRun{"advice.keep_whole_run",
                                 "A larger limit{limit:brackets}, histograms in fewer steps{interval:brackets} or fewer modules "
                                 "keep the whole run."};

void find_cut_short(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  for (const EventRow* event : ends(facts, EventKind::cut_short))
    found.add(Severity::warning, kCutShort({{"event", Name{NameKind::event, event->text}}}),
              {{facts.selection.key_of_step(event->step, event->rank), {}}},
              Sentences{kTrainingWentOn(), kKeepWholeRun({{"limit", settings.now(SettingKind::recording_limit)},
                                                          {"interval", settings.now(SettingKind::recording_interval)}})});
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
