#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOneRankOnly{"recording.other_ranks",
                                "The trace is of rank {rank} of a run of {ranks}: the others are not read."};
constexpr Template kNameFolderOfRanks{"advice.name_folder_of_ranks",
                                      "Name a folder that has the traces of all ranks to read them as one run."};

void find_other_ranks(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  if (!trace.lacks_ranks()) return;
  found.add(Severity::info, kOneRankOnly({{"rank", ordinal(trace.run().rank)}, {"ranks", trace.run().world_size}}), {},
            kNameFolderOfRanks());
}

}  // namespace

extern constinit const FindingRule recording_other_ranks{
    .code = "recording.other_ranks",
    .part = Part::recording,
    .raised = "The trace of one rank of several is read alone.",
    .meaning = "What the other ranks did is in none of the findings.",
    .help = "Read the traces of all ranks from one folder.",
    .is_about_run = false,
    .find = find_other_ranks,
};

}  // namespace ulpscope::findings
