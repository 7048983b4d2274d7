#include "ulpscope/analyzers/ranges.h"

#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  RangeOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  const std::string by = arguments.text("--by", "tensor");
  for (const GroupBy group : {GroupBy::tensor, GroupBy::module, GroupBy::phase, GroupBy::role}) {
    if (by == name_of(group)) options.by = group;
  }
  std::vector<const FloatFormat*> formats;
  for (const std::string& name : arguments.list("--format")) {
    if (const FloatFormat* format = find_format(name)) formats.push_back(format);
  }
  if (!formats.empty()) options.formats = formats;
  const TraceReader reader(arguments.positional(0));
  return finish(analyze_ranges(reader, options), arguments);
}

}  // namespace

Verb ranges_verb() {
  return {"ranges",
          "do the numbers fit their format: flushed, subnormal, overflowing, headroom",
          "Per tensor, module, phase or role: what each rounding lost, what FP16 and BF16 would have lost, gradients as\n"
          "scaled and true, and exponent histograms against the format's limits. Worst first.",
          {{"TRACE", "a trace file"}},
          join({{{"--by", "", "WHAT", "what a row of the tables is", "tensor", {"tensor", "module", "phase", "role"}}},
                selection_options(),
                output_options({"fp16", "bf16"})}),
          {{"ulpscope ranges run.h5 --phase backward", "do the gradients fit?"},
           {"ulpscope ranges run.h5 --by module --step 0..9", "the first ten steps, by module"},
           {"ulpscope ranges run.h5 --format bf16 --role weight_gradient", "weight gradients against BF16's limits"}},
          run};
}

}  // namespace ulpscope::cli
