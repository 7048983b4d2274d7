#include <algorithm>

#include "ulpscope/analyzers/verbs/what_if_report.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_whatif(const Arguments& arguments) {
  WhatIfOptions options;
  static_cast<AnalysisOptions&>(options) = analysis_options(arguments);
  options.by = group_by(arguments);
  if (const auto formats = asked_formats(arguments); !formats.empty()) options.formats = formats;
  options.exponents = parse_scale_exponents("--scale", arguments.list("--scale"));
  options.at_every_scale = output_kind(arguments) == OutputKind::html;
  for (const std::string& scaling : arguments.list("--scaling")) options.scalings.push_back(parse_scaling(scaling));
  return run_analysis<WhatIfAnalysis>(arguments, options);
}

std::vector<OptionSpec> options() {
  std::vector<OptionSpec> all =
      join({{{"--scale", "", "SCALES", "loss scales, powers of two: 2^10, 65536 or 2^0..2^24", "2^0..2^24", {}, true},
             {"--scaling", "", "SCALER",
              "replay a scaler: static:2^12, dynamic:init=2^16,growth_interval=2000, or a library's: deepspeed; may be repeated"}},
            group_option(),
            follow_option(),
            selection_options(),
            what_if_options()});
  // There is no verdict and no finding.
  const std::vector<std::string> about_findings{"--all", "--fail-on"};
  std::erase_if(all, [&](const OptionSpec& option) {
    return std::find(about_findings.begin(), about_findings.end(), option.name) != about_findings.end();
  });
  for (OptionSpec& option : all) {
    if (option.name == "--format") option.default_text = "text, and fp16";
    if (option.name == "--follow") option.meaning = "wait until the writer of the trace ends, and answer for all of it";
  }
  return all;
}

}  // namespace

Verb whatif_verb() {
  return {
      "whatif",
      "what other formats and loss scales would have done to a recorded run",
      "At every format and loss scale: the shares of the gradients flushed to zero, subnormal and overflowed, the part of their\n"
      "norm that is lost, the scale that loses least, and the tensors that are worst off; with --scaling, which steps a scaler\n"
      "would have skipped and where its scale would have gone. Weights and activations hold no loss scale and are answered by\n"
      "format. Numbers are exact, or bounds between which the truth lies, for the roundings that were recorded, each by itself.",
      traces_positional(),
      options(),
      {{"ulpscope whatif run.h5", "FP16 at 2^0 to 2^24: which scale loses least, and what it loses"},
       {"ulpscope whatif run.h5 --format fp16,bf16,e4m3 --scale 2^0..2^24", "three formats side by side"},
       {"ulpscope whatif run.h5 --format fp16 --scaling dynamic --scaling static:2^12", "would a scaler have skipped steps?"},
       {"ulpscope whatif run.h5 --by module --scale 2^12 --limit 0", "all modules at one scale"}},
      run_whatif};
}

}  // namespace ulpscope::cli
