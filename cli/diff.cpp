#include <charconv>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/array_difference.h"

namespace ulpscope::cli {

namespace {

// The number format that --format names beside how to print.
const FloatFormat* asked_format(const Arguments& arguments) {
  const std::vector<const FloatFormat*> formats = any_formats(arguments);
  if (formats.size() > 1)
    throw usage_error("--format takes one number format, got {} and '{}'", formats[0]->name, formats[1]->name);
  return formats.empty() ? nullptr : formats[0];
}

std::optional<double> most_error(const Arguments& arguments) {
  if (!arguments.has("--fail-above")) return {};
  const std::string text = arguments.text("--fail-above");
  double most = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), most);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(most) || most <= 0)
    throw usage_error("--fail-above: expected a number above 0, found '{}'", one_line(text));
  if (!arguments.has("--exact")) throw usage_error("--fail-above compares errors, which --exact EXACT is needed for");
  return most;
}

int run_diff(const Arguments& arguments) {
  const std::optional<double> most = most_error(arguments);
  const FloatFormat* const format = asked_format(arguments);
  const NumberArray candidate(arguments.positional(0), format), reference(arguments.positional(1), format);
  std::optional<NumberArray> exact;
  if (arguments.has("--exact")) exact.emplace(arguments.text("--exact"), format);
  const ArrayDifference found =
      compare_arrays(candidate, reference, exact ? &*exact : nullptr, {format, analysis_options(arguments).limit});
  finish(found.report, arguments);
  const bool fails = most && (found.made_nonfinite > 0 || found.judged_ratio() > *most);
  return fails ? kFindings : kClean;
}

std::vector<OptionSpec> diff_options() {
  return join(
      {{{"--exact", "", "FILE", "the same numbers as computed in a wider type, FP64 at best: which of the two is nearer"},
        {"--fail-above", "", "R",
         "exit with 1 where the error of CANDIDATE is above R times that of REFERENCE and what correctly rounded numbers may have, "
         "or it "
         "has NaN or Inf where REFERENCE has none"}},
       number_options(
           "text, json or html, how to print; and a number format such as bf16 or e4m3: of ulps, of the rounded exact numbers, "
           "and of bytes and unsigned integers in the files, which are then its encodings",
           "text, and the narrower of both", {"--fail-on", "--all"})});
}

}  // namespace

Verb diff_verb() {
  return {"diff",
          "two arrays of numbers, as of two kernels: how far apart, and which is nearer to exact ones",
          "Files are those of numpy.save, of one shape: float16, float32, float64, or encodings of --format.",
          {{"CANDIDATE", "the numbers in question"}, {"REFERENCE", "what they are held against"}},
          diff_options(),
          {{"ulpscope diff mine.npy theirs.npy", "equal elements, errors in ulps, and the worst elements"},
           {"ulpscope diff mine.npy theirs.npy --exact fp64.npy --format bf16",
            "the errors of both, over each other and over correctly rounded numbers"},
           {"ulpscope diff mine.npy theirs.npy --exact fp64.npy --fail-above 1.1", "a gate for a kernel that should be no worse"}},
          run_diff};
}

}  // namespace ulpscope::cli
