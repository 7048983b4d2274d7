#include "ulpscope/analyzers/verbs/errors.h"

#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_errors(const Arguments& arguments) { return run_analysis<ErrorAnalysis>(arguments, analysis_options(arguments)); }

}  // namespace

Verb errors_verb() {
  return {
      "errors",
      "what ops got wrong by themselves, beside the same in a wider type",
      "Of a trace of `train --shadow`, or of what `replay --set shadow.every=1 -o FILE` wrote: per output the error that its op\n"
      "made of exact inputs, over its norm and over what one rounding of the exact result costs. The largest first.",
      traces_positional(),
      join({follow_option(), selection_options(), output_options()}),
      {{"ulpscope errors run.h5", "which ops are less exact than their types?"},
       {"ulpscope errors run.h5 --phase backward --limit 0", "of the backward pass, all outputs"}},
      run_errors};
}

}  // namespace ulpscope::cli
