#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOneRankOnly{"recording.other_ranks",
                                "The trace holds rank {rank} of {ranks:count rank}; the others are not read."};
constexpr Template kNameFolderOfRanks{"advice.name_folder_of_ranks",
                                      "Put the traces of all ranks into one folder, and name that: they are read as one run."};

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
    .meaning = "No finding covers the other ranks.",
    .help = "Put the traces of all ranks into one folder, and name the folder.",
    .is_about_run = false,
    .find = find_other_ranks,
};

}  // namespace ulpscope::findings
