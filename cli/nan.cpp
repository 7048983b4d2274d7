#include "ulpscope/analyzers/nan.h"

#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/capsule_trace.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/stop_signals.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/fixes.h"
#include "ulpscope/studies/nan_trials.h"

namespace ulpscope::cli {

namespace {

const std::string& fact_text(const Report& report, std::string_view name) {
  static const std::string kNone;
  for (const Quantity& fact : report.facts)
    if (const std::string* const text = std::get_if<std::string>(&fact.value); text && fact.name == name) return *text;
  return kNone;
}

// Of a tree and of two ways, which are all long.
constexpr size_t kLimit = 6;

int run(const Arguments& arguments) {
  const std::string path = arguments.positional(0);
  const AnalysisOptions options = analysis_options(arguments, kLimit);
  FixOptions fixes;
  fixes.budget = static_cast<double>(arguments.integer("--budget", 1).value_or(60));
  Progress progress;
  std::optional<ScratchFolder> scratch;
  const bool is_capsule = ulpscope::is_checkpoint(path);
  const Snapshot trace = is_capsule ? record_capsule(path, scratch.emplace("ulpscope-nan"), progress) : open_trace(path);
  check_asked_for({&trace}, options);
  Report report = analyze_nan(trace, options);
  if (is_capsule) report.sources.front().path = path;

  const std::optional<RunFailure> failure = failure_of(trace);
  if (!failure && report.verdict != Verdict::healthy)
    report.add_fact("run_again",
                    fmt::format("nothing was tried: the run did not end in NaN or {} skipped steps", FailureWatch::kSkipped));
  if (failure && !arguments.has("--no-trials")) {
    Trial start;
    try {
      if (is_capsule)
        start.capsule = path;
      else
        start = trial_from_start(trace);
      fixes.watch = [&](std::string_view trial) {
        progress.work(fmt::format("trying {}", trial), 0);
        return true;
      };
      add_fixes(try_fixes(start, *failure, fact_text(report, "module"), fixes), report);
    } catch (const Error& error) {
      say("ulpscope: nothing was tried: {}", one_line(error.what()));
    }
    progress.finish();
  }
  return finish(report, arguments);
}

}  // namespace

Verb nan_verb() {
  return {"nan",
          "why a run had NaN or infinities, and what would have kept it from failing",
          "Of where they began: the op, the element and its operands, the cause and the arithmetic that shows it, the headroom in\n"
          "the steps before, what would have told of it, and the way to the loss and the weights. Then changes are tried, by\n"
          "running the steps again with them: from the run's first step, or from that of a capsule.",
          {{"TRACE", "a trace file, a folder of a run's trace and of those resumed from it, or a capsule"}},
          join({{{"--no-trials", "", "", "run nothing: only what was recorded"},
                 {"--budget", "", "SECONDS", "for all trials together", "60"}},
                selection_options(),
                output_options(kLimit)}),
          {{"ulpscope nan run.h5", "the beginning that did most harm, and what helps"},
           {"ulpscope nan nan.capsule", "the same from a capsule"},
           {"ulpscope nan run.h5 --no-trials --limit 0 --json", "all operands and steps of the way, for programs"}},
          run};
}

}  // namespace ulpscope::cli
