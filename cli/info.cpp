#include "ulpscope/analyzers/verbs/info.h"

#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

Verb info_verb() {
  return {"info",
          "what is in a trace, and whether its writer is alive, closed or dead",
          "",
          {{"TRACE", "a trace file, or a folder of a run's trace and of those resumed from it"}},
          output_options(),
          {{"ulpscope info run.h5", "the run, its losses and what was recorded"},
           {"ulpscope info run.h5 --json", "the same for programs"}},
          [](const Arguments& arguments) {
            const Snapshot reader = open_trace(arguments.positional(0));
            return finish(analyze_info(reader, analysis_options(arguments)), arguments);
          }};
}

}  // namespace ulpscope::cli
