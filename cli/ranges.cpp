#include "ulpscope/analyzers/verbs/ranges.h"

#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_ranges(const Arguments& arguments) {
  RangeOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  options.by = group_by(arguments);
  if (const auto formats = asked_formats(arguments); !formats.empty()) options.formats = formats;
  return run_analysis<RangeAnalysis>(arguments, options);
}

}  // namespace

Verb ranges_verb() {
  return {"ranges",
          "do the numbers fit their format: flushed, subnormal, overflowing, headroom",
          "Per tensor, module, phase or role: what each rounding lost, with --format what another format would have,\n"
          "gradients as scaled and true, and exponent histograms against the format's limits. Worst first.",
          traces_positional(),
          join({group_option(), follow_option(), selection_options(), what_if_options()}),
          {{"ulpscope ranges run.h5 --phase backward", "do the gradients fit?"},
           {"ulpscope ranges run.h5 --by module --step 0..9", "the first ten steps, by module"},
           {"ulpscope ranges run.h5 --format bf16 --role weight_gradient", "weight gradients against BF16's limits"}},
          run_ranges};
}

}  // namespace ulpscope::cli
