#include "ulpscope/analyzers/verbs/scale.h"

#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_scale(const Arguments& arguments) {
  ScaleOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  if (const auto formats = asked_formats(arguments); !formats.empty()) options.format = formats.back();
  return run_analysis<ScaleAnalysis>(arguments, options);
}

}  // namespace

Verb scale_verb() {
  return {"scale",
          "the loss scale: its history, what made it change, and which scales would have fitted",
          "",
          traces_positional(),
          join({follow_option(), selection_options(), what_if_options()}),
          {{"ulpscope scale run.h5", "each backoff with the tensor that caused it"},
           {"ulpscope scale fp32.h5 --format fp16", "which loss scale FP16 would need"}},
          run_scale};
}

}  // namespace ulpscope::cli
