#include "ulpscope/analyzers/verbs/compare.h"

#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

Verb compare_verb() {
  return {
      "compare",
      "two runs side by side: loss, time, memory, skipped steps, ranges, and where they first differ",
      "Of runs that were recorded with `--record stats,bits` also the first output that differs in any bit, what is other about\n"
      "its op, and whether rounding can explain it.",
      {{"A", "a trace file, or a folder of a run's trace and of those resumed from it"}, {"B", "another one"}},
      join({selection_options(), output_options()}),
      {{"ulpscope compare fp32.h5 fp16.h5", "what mixed precision gained and cost"}},
      [](const Arguments& arguments) {
        const Snapshot a = open_trace(arguments.positional(0)), b = open_trace(arguments.positional(1));
        const AnalysisOptions options = analysis_options(arguments);
        check_asked_for({&a, &b}, options);
        return finish(analyze_compare(a, b, options), arguments);
      }};
}

}  // namespace ulpscope::cli
