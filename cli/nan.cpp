#include "ulpscope/analyzers/nan.h"

#include <fmt/format.h>

#include "ulpscope/cli/capsule_trace.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/fixes.h"
#include "ulpscope/studies/nan_trials.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope::cli {

namespace {

// Of a tree and of two ways, which are all long.
constexpr size_t kLimit = 6;

int run_nan(const Arguments& arguments) {
  const AnalysisOptions options = analysis_options(arguments, kLimit);
  FixOptions fixes;
  fixes.budget = trial_budget(arguments);
  Progress progress;
  fixes.watch = trial_watch(progress);
  const TraceOrCapsule asked(arguments.positional(0), progress);
  Report report = asked.report(options, analyze_nan);

  const std::optional<RunFailure> failure = failure_of(asked.trace());
  if (!failure && report.verdict != Verdict::healthy)
    report.add_fact("run_again",
                    fmt::format("nothing was tried: the run did not end in NaN or {} skipped steps", FailureWatch::kSkipped));
  if (failure && !arguments.has("--no-trials"))
    asked.try_changes([&](const Trial& start) {
      fixes.advised = changes_of(report);
      add_fixes(try_fixes(start, *failure, find_fact<std::string>(report, "module").value_or(""), fixes), report);
    });
  progress.finish();
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
          join({trial_options(), selection_options(), output_options(kLimit)}),
          {{"ulpscope nan run.h5", "the beginning that did most harm, and what helps"},
           {"ulpscope nan nan.capsule", "the same from a capsule"},
           {"ulpscope nan run.h5 --no-trials --limit 0 --json", "all operands and steps of the way, for programs"}},
          run_nan};
}

}  // namespace ulpscope::cli
