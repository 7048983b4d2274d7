#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOnlyCountsFromThere{"advice.only_counts_from_there",
                                        "From there on the trace has counts only; magnitudes and histograms are known for the "
                                        "steps before."};
constexpr Template kKeepMagnitudes{"advice.keep_magnitudes",
                                   "To keep them, raise the size limit{limit:brackets}, or record histograms in fewer "
                                   "steps{interval:brackets}."};

void find_level_lowered(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  tell_events(facts, EventKind::level_lowered, Severity::warning,
              Sentences{kOnlyCountsFromThere(), kKeepMagnitudes({{"limit", settings.now(SettingKind::recording_limit)},
                                                                 {"interval", settings.now(SettingKind::recording_interval)}})},
              found);
}

}  // namespace

extern constinit const FindingRule recording_level_lowered{
    .code = "recording.level_lowered",
    .part = Part::recording,
    .raised = "The recording level was lowered, as where the trace came near its size limit.",
    .meaning = "Magnitudes and histograms are not known from there on.",
    .help = "Raise the size limit of the trace, or record histograms in fewer steps.",
    .is_about_run = false,
    .shown_by = "mlp --precision fp16 --steps 300 --max-size 2MB",
    .find = find_level_lowered,
};

}  // namespace ulpscope::findings
