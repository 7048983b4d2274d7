#include "ulpscope/analyzers/scale.h"

#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  ScaleOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  for (const std::string& name : arguments.list("--format")) {
    if (const FloatFormat* format = find_format(name)) options.format = format;
  }
  const TraceReader reader(arguments.positional(0));
  return finish(analyze_scale(reader, options), arguments);
}

}  // namespace

Verb scale_verb() {
  return {"scale",
          "the loss scale: its history, what made it change, and which scales would have fitted",
          "",
          {{"TRACE", "a trace file"}},
          join({selection_options(), output_options({"fp16", "bf16"})}),
          {{"ulpscope scale run.h5", "each backoff with the tensor that caused it"},
           {"ulpscope scale fp32.h5 --format fp16", "which loss scale FP16 would need"}},
          run};
}

}  // namespace ulpscope::cli
