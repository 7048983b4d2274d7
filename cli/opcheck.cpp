#include <algorithm>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/stop_signals.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/op_check_report.h"

namespace ulpscope::cli {

namespace {

constexpr DType kCheckedTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

std::vector<DType> asked_types(const Arguments& arguments) {
  std::vector<DType> types;
  for (const FloatFormat* format : any_formats(arguments)) {
    const auto* found =
        std::find_if(std::begin(kCheckedTypes), std::end(kCheckedTypes), [&](DType type) { return info(type).format == format; });
    if (found == std::end(kCheckedTypes))
      throw usage_error("opcheck: tensors of {} are not checked; expected fp32, fp16, bf16 or fp64", format->name);
    if (std::find(types.begin(), types.end(), *found) == types.end()) types.push_back(*found);
  }
  return types.empty() ? OpCheckOptions().types : types;
}

std::vector<std::string> accumulation_names() {
  std::vector<std::string> names;
  for (const Accumulation& row : accumulations()) names.emplace_back(row.name);
  return names;
}

std::vector<const Accumulation*> asked_accumulations(const Arguments& arguments) {
  std::vector<std::string> names = arguments.list("--accumulate");
  if (names.empty()) names = {"fp32", "fp16", "bf16", "exact", "h100", "v100"};
  std::vector<const Accumulation*> rows;
  for (const std::string& name : names) {
    const Accumulation* const row = find_accumulation(name);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
  return rows;
}

int run_opcheck(const Arguments& arguments) {
  OpCheckOptions options;
  options.ops = arguments.list("--op");
  options.types = asked_types(arguments);
  options.accumulations = asked_accumulations(arguments);
  options.seed = static_cast<uint64_t>(arguments.integer("--seed", 0).value_or(0));
  options.budget = arguments.duration("--budget").value_or(0);
  const std::string folder = arguments.text("--save"), output = arguments.text("--output");
  if (!output.empty()) check_replaceable(output, arguments.has("--force"));
  if (!folder.empty()) make_output_folder(folder, arguments.has("--force"), "--save");
  const StopSignals signals;
  Progress progress;
  // A short check needs no word of it.
  constexpr double kSilent = 2;
  options.progress = [&, begin = Clock::now()](const std::string& op, double done) {
    if (seconds_since(begin) > kSilent) progress.work("checking " + op, done);
  };
  options.stopped = [&] { return signals.came(); };
  const OpCheck found = check_ops(options);
  progress.finish();
  const size_t limit = analysis_options(arguments).limit;
  if (!folder.empty()) save_op_check(found, limit, folder, *make_cpu_backend({.threads = 1}));
  finish(op_check_report(found, limit, arguments.has("--explain")), arguments);
  if (found.broken > 0) return kFindings;
  if (found.not_called == 0) return kClean;
  say("ulpscope: {} came before {} of {} rows were checked", signals.name(), found.not_called, found.not_called + found.ops.size());
  return kFailed;
}

std::vector<OptionSpec> opcheck_options() {
  return join({{{"--op", "", "PATTERN", "ops, by patterns of their names: softmax, 'conv*', '*_backward'", "all", {}, true},
                {"--accumulate", "", "NAME", "what products are summed in", "fp32, fp16, bf16, exact, h100, v100",
                 accumulation_names(), true},
                {"--budget", "", "TIME", "search no longer than about that: 90, 90s, 2m", "as long as the search takes"},
                {"--seed", "", "N", "of the inputs", "0"},
                {"--explain", "", "", "also the formula of each bound, and what it comes to"},
                {"--save", "", "FOLDER",
                 "write the inputs, the output and the exact numbers of each row shown as files of numpy.save, BF16 as its "
                 "encodings, with a text of the attributes"}},
               number_options("text, json or html, how to print; and types of tensors: fp32, fp16, bf16, fp64",
                              "text, and fp32, fp16, bf16", {"--fail-on", "--all"})});
}

}  // namespace

Verb opcheck_verb() {
  return {
      "opcheck",
      "every op beside its error bound, on inputs that are searched for the worst",
      "Each op of the CPU backend, forward and backward, beside its exact value in multiprecision arithmetic and the bound that\n"
      "follows from its definition. Exits with 1 where an element is beyond its bound.",
      {},
      opcheck_options(),
      {{"ulpscope opcheck --budget 2m", "is any op less exact than its arithmetic allows?"},
       {"ulpscope opcheck --op softmax,layer_norm --format fp16 --explain", "how far off they are at worst, and what bounds it"},
       {"ulpscope opcheck --op matmul --accumulate fp16,h100 --save worst", "with inputs that can be run elsewhere"}},
      run_opcheck};
}

}  // namespace ulpscope::cli
