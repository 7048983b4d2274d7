#include "ulpscope/analyzers/verbs/errors.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/capsule_trace.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/error_study.h"

namespace ulpscope::cli {

namespace {

// A trial that begins at a capsule of the first step, which is written for it, so that runs in other types have the same weights.
Trial from_capsule(Trial start, std::string scratch) {
  if (!start.capsule.empty()) return start;
  Trial first = start;
  first.steps = 1;
  first.kept = {.path = std::move(scratch), .event = CapsuleEvent::step, .step = 0, .keep_steps = 1};
  run(first);
  start.capsule = first.kept.path;
  start.experiment.reset();
  return start;
}

// Reports on one trace or capsule, and on how the errors of a step came together.
int run_with_trials(const Arguments& arguments, const AnalysisOptions& options) {
  ErrorStudyOptions trials;
  trials.budget = trial_budget(arguments);
  Progress progress;
  trials.watch = trial_watch(progress);
  TraceOrCapsule asked(arguments.positional(0), progress);
  Report report = asked.report(options, analyze_errors);
  const bool is_harmed = std::any_of(report.findings.begin(), report.findings.end(),
                                     [](const Finding& finding) { return finding.severity >= Severity::warning; });
  if ((is_harmed || asked.is_capsule()) && !arguments.has("--no-trials"))
    asked.try_changes(report, [&](const Trial& start) {
      add_study(study_errors(from_capsule(start, asked.scratch_file("first.capsule")), trials), options.limit, report);
    });
  progress.finish();
  return finish(report, arguments);
}

int run_errors(const Arguments& arguments) {
  const AnalysisOptions options = analysis_options(arguments);
  if (arguments.positionals().size() == 1 && !arguments.has("--follow")) return run_with_trials(arguments, options);
  check_is_one_for_trials(arguments);
  return run_analysis<ErrorAnalysis>(arguments, options);
}

}  // namespace

Verb errors_verb() {
  return {
      "errors",
      "what ops got wrong by themselves, and how that came together in the gradients",
      "Of a trace of `train --shadow`, or of what `replay --set shadow.every=1 -o FILE` wrote: per output the error that its op\n"
      "made of exact inputs, over its norm and over what one rounding of the exact result costs. The largest first.\n"
      "Where something is wrong with that, and of a capsule, the first step runs again in a wider type and as it was: the error of "
      "each\n"
      "gradient, and of each output what its op injects and what it inherits. Where a gradient is 10% off, modules are tried\n"
      "one at a time: only it in FP32, and all others.",
      traces_and_capsule_positional(),
      join({follow_option(), trial_options(), selection_options(), output_options()}),
      {{"ulpscope errors run.h5", "which ops are less exact than their types, and what mends it?"},
       {"ulpscope errors step.capsule", "where the error of each gradient came from, in that step"},
       {"ulpscope errors run.h5 --phase backward --limit 0 --no-trials", "of the backward pass, all outputs"}},
      run_errors};
}

}  // namespace ulpscope::cli
