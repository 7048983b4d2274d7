#include "ulpscope/cli/nan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/verbs/nan.h"
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

// The tables, as --only names them.
const std::vector<std::string> kTables{"fixes", "beginnings", "operands", "headroom", "alarms", "way_to_loss", "way_to_weights"};

void keep_only(const std::vector<std::string>& asked, Report& report) {
  if (asked.empty()) return;
  std::erase_if(report.tables,
                [&](const Table& table) { return std::find(asked.begin(), asked.end(), table.name) == asked.end(); });
  report.plots.clear();
}

}  // namespace

NanAnswer explain_nan(const Arguments& arguments) {
  const AnalysisOptions options = analysis_options(arguments, kLimit);
  FixOptions fixes;
  fixes.budget = trial_budget(arguments);
  Progress progress;
  fixes.watch = trial_watch(progress);
  const TraceOrCapsule asked(arguments.positional(0), progress);
  NanAnswer answer{asked.report(options, analyze_nan), {}, {}};
  Report& report = answer.report;

  const std::optional<RunFailure> failure = failure_of(asked.trace());
  if (!failure && (!report.verdict || *report.verdict >= Verdict::warning))
    report.add_fact(
        "run_again",
        fmt::format("nothing was tried: training did not end with NaN or Inf in the loss or a weight, or with {} skipped steps",
                    FailureWatch::kSkipped));
  if (failure && arguments.has("--no-trials")) report.add_fact("run_again", std::string("nothing was tried: --no-trials"));
  if (failure && !arguments.has("--no-trials"))
    asked.try_changes(report, [&](const Trial& start) {
      fixes.advised = changes_of(report);
      const FixStudy study = try_fixes(start, *failure, find_fact<std::string>(report, "module").value_or(""), fixes);
      if (const FixTrial* helps = add_fixes(study, report)) {
        answer.as_it_was = experiment_of(start);
        answer.repaired = helps->fix.experiment;
      }
    });
  progress.finish();
  keep_only(arguments.list("--only"), report);
  return answer;
}

Verb nan_verb() {
  return {
      "nan",
      "why a run had NaN or Inf, and which change of settings prevents it",
      "Where they began: the op, the element and its operands, the cause and the arithmetic that shows it, the headroom in the\n"
      "steps before, early warnings, and the path to the loss and the weights. Then changes are tried, by running the steps\n"
      "again with them: from the run's first step, or from that of a capsule.",
      {{"TRACE", "a trace file, a folder of a run's trace and of those resumed from it, or a capsule"}},
      join({trial_options(),
            {{"--only", "", "TABLES", "these tables beside the verdict, and no plots", "all", kTables, true}},
            selection_options(),
            output_options(kLimit)}),
      {{"ulpscope nan run.h5", "the beginning that did most harm, and what helps"},
       {"ulpscope nan run.h5 --only fixes", "the verdict, its cause and what was tried"},
       {"ulpscope nan nan.capsule", "the same from a capsule"},
       {"ulpscope nan run.h5 --no-trials --limit 0 --json", "all operands and all steps of the path, for programs"}},
      [](const Arguments& arguments) { return finish(explain_nan(arguments).report, arguments); }};
}

}  // namespace ulpscope::cli
