#include "ulpscope/analyzers/updates.h"

#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/capsule_trace.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/studies/nan_trials.h"
#include "ulpscope/studies/update_trials.h"

namespace ulpscope::cli {

namespace {

// Of one trace or capsule: what came of changes, too.
int run_with_trials(const Arguments& arguments, const AnalysisOptions& options) {
  const std::string path = arguments.positional(0);
  Progress progress;
  const ScratchFolder scratch("ulpscope-updates");
  const bool is_capsule = ulpscope::is_checkpoint(path);
  const Snapshot trace = is_capsule ? record_capsule(path, scratch, progress) : open_trace(path);
  check_asked_for({&trace}, options);
  Report report = analyze_updates(trace, options);
  if (is_capsule) report.sources.front().path = path;
  if (tells_of_losses(report) && !arguments.has("--no-trials")) {
    UpdateTrialOptions trials;
    trials.scratch = scratch.file("trial.h5");
    trials.budget = static_cast<double>(arguments.integer("--budget", 1).value_or(60));
    trials.watch = [&](std::string_view trial) {
      progress.work(fmt::format("trying {}", trial), 0);
      return true;
    };
    try {
      Trial start;
      if (is_capsule)
        start.capsule = path;
      else
        start = trial_from_start(trace);
      add_trials(try_updates(start, trace.step_count(), trials), report);
    } catch (const Error& error) {
      say("ulpscope: nothing was tried: {}", one_line(error.what()));
    }
  }
  progress.finish();
  return finish(report, arguments);
}

int run(const Arguments& arguments) {
  const AnalysisOptions options = analysis_options(arguments);
  if (arguments.positionals().size() == 1 && !arguments.has("--follow")) return run_with_trials(arguments, options);
  for (const char* option : {"--no-trials", "--budget"})
    if (arguments.has(option)) throw usage_error("{} belongs to one trace, which nothing writes any more", option);
  return run_analysis<UpdateAnalysis>(arguments, options);
}

std::vector<PositionalSpec> positionals() {
  std::vector<PositionalSpec> specs = traces_positional();
  specs.front().meaning += "; one may be a capsule";
  return specs;
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
      positionals(),
      join({follow_option(),
            {{"--no-trials", "", "", "run nothing: only what was recorded"},
             {"--budget", "", "SECONDS", "for all trials together", "60"}},
            selection_options(),
            output_options()}),
      {{"ulpscope updates run.h5", "do the weights learn what the optimizer asks for, and what helps?"},
       {"ulpscope updates run.h5 --no-trials", "only the first of these"},
       {"ulpscope updates run.h5 --module 'layers.*' --limit 0", "all parameters of these modules"},
       {"ulpscope updates run.h5 --step 500..", "from step 500 on"}},
      run};
}

}  // namespace ulpscope::cli
