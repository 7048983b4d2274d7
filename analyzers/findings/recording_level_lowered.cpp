#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOnlyCountsFromThere{"advice.only_counts_from_there",
                                        "From there on only counts are known, no magnitudes or histograms: what needs those is "
                                        "answered for the steps before."};
constexpr Template kKeepMagnitudes{"advice.keep_magnitudes",
                                   "A larger limit{limit:brackets}, or histograms in fewer steps{interval:brackets}, keeps them "
                                   "for the whole run."};

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
    .raised = "Less was recorded from a step on.",
    .meaning = "Magnitudes are not known from there on.",
    .is_about_run = false,
    .shown_by = "mlp --precision fp16 --steps 300 --max-size 2MB",
    .find = find_level_lowered,
};

}  // namespace ulpscope::findings
