#include "ulpscope/analyzers/verbs/updates.h"

#include "ulpscope/base/error.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/capsule_trace.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/trial_report.h"
#include "ulpscope/studies/update_trials.h"

namespace ulpscope::cli {

namespace {

// Of one trace or capsule: what came of changes, too.
int run_with_trials(const Arguments& arguments, const AnalysisOptions& options) {
  UpdateTrialOptions trials;
  trials.budget = trial_budget(arguments);
  trials.analysis = options;
  Progress progress;
  trials.watch = trial_watch(progress);
  TraceOrCapsule asked(arguments.positional(0), progress);
  Report report = asked.report(options, analyze_updates);
  if (!findings_of_losses(report).empty() && !arguments.has("--no-trials"))
    asked.try_changes(report, [&](const Trial& start) {
      trials.advised = changes_of(report);
      trials.scratch = asked.scratch_file("trial.h5");
      add_trials(try_updates(start, asked.trace().step_count(), trials), report);
    });
  progress.finish();
  return finish(report, arguments);
}

int run_updates(const Arguments& arguments) {
  const AnalysisOptions options = analysis_options(arguments);
  if (arguments.positionals().size() == 1 && !arguments.has("--follow")) return run_with_trials(arguments, options);
  check_is_one_for_trials(arguments);
  return run_analysis<UpdateAnalysis>(arguments, options);
}

}  // namespace

Verb updates_verb() {
  return {
      "updates",
      "what became of the updates: lost to rounding, weight decay that arrived, when learning stalls",
      "An update is lost where it was not zero and left the stored weight as it was. Per parameter, the worst first: how many,\n"
      "at the beginning and at the end, and in which step 99% of them are: recorded, or extrapolated where the trend allows it.\n"
      "Where they are lost, changes are tried by running the steps again with them: another learning rate, updates in FP32 or\n"
      "rounded stochastically, FP32 master weights; those of one trace from the run's first step on, those of a capsule from its.",
      traces_and_capsule_positional(),
      join({follow_option(), trial_options(), selection_options(), output_options()}),
      {{"ulpscope updates run.h5", "do the weights learn what the optimizer asks for, and what helps?"},
       {"ulpscope updates run.h5 --no-trials", "only the first of these"},
       {"ulpscope updates run.h5 --module 'layers.*' --limit 0", "all parameters of these modules"},
       {"ulpscope updates run.h5 --step 500..", "from step 500 on"}},
      run_updates};
}

}  // namespace ulpscope::cli
