#include "ulpscope/analyzers/scale.h"

#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  ScaleOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  if (const auto formats = asked_formats(arguments); !formats.empty()) options.format = formats.back();
  const Snapshot reader = open_trace(arguments.positional(0));
  check_asked_for({&reader}, options);
  return finish(analyze_scale(reader, options), arguments);
}

}  // namespace

Verb scale_verb() {
  return {"scale",
          "the loss scale: its history, what made it change, and which scales would have fitted",
          "",
          {{"TRACE", "a trace file, or a folder of a run's trace and of those resumed from it"}},
          join({selection_options(), what_if_options()}),
          {{"ulpscope scale run.h5", "each backoff with the tensor that caused it"},
           {"ulpscope scale fp32.h5 --format fp16", "which loss scale FP16 would need"}},
          run};
}

}  // namespace ulpscope::cli
