#include "ulpscope/analyzers/updates.h"

#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) { return run_analysis<UpdateAnalysis>(arguments, analysis_options(arguments)); }

}  // namespace

Verb updates_verb() {
  return {
      "updates",
      "what became of the updates: lost to rounding, weight decay that arrived, when learning stalls",
      "An update is lost where it was not zero and left the stored weight as it was. Per parameter, the worst first: how many,\n"
      "at the beginning and at the end, and in which step 99% of them are: recorded, or extrapolated where the trend allows it.",
      traces_positional(),
      join({follow_option(), selection_options(), output_options()}),
      {{"ulpscope updates run.h5", "do the weights learn what the optimizer asks for?"},
       {"ulpscope updates run.h5 --module 'layers.*' --limit 0", "all parameters of these modules"},
       {"ulpscope updates run.h5 --step 500..", "from step 500 on"}},
      run};
}

}  // namespace ulpscope::cli
