#include "ulpscope/cli/capsule_trace.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/analyze.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/studies/nan_trials.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope::cli {

TraceOrCapsule::TraceOrCapsule(const std::string& path, Progress& progress)
    : path_(path), is_capsule_(ulpscope::is_checkpoint(path)) {
  if (is_capsule_) {
    record(progress);
  } else {
    trace_ = open_trace(path);
  }
}

void TraceOrCapsule::record(Progress& progress) {
  Trial trial;
  trial.capsule = path_;
  trial.trace_path = scratch_file("capsule.h5");
  trial.level = RecordLevel::stats;
  trial.watch = [&](std::string_view work, double share) { progress.work(work, share); };
  const TrialOutcome outcome = ulpscope::run(trial);
  if (outcome.trace.failed) throw failed_error("the capsule's steps could not be recorded: {}", outcome.trace.failure);
  if (!outcome.is_as_before()) say("ulpscope: warning: the steps of '{}' do not come out as they were (`ulpscope replay`)", path_);
  trace_.emplace(trial.trace_path);
}

Report TraceOrCapsule::report(const AnalysisOptions& options,
                              const std::function<Report(const Snapshot&, const AnalysisOptions&)>& analyze) const {
  check_asked_for({&*trace_}, options);
  Report report = analyze(*trace_, options);
  if (is_capsule_) report.sources.front().path = path_;
  return report;
}

void TraceOrCapsule::try_changes(Report& report, const std::function<void(const Trial& start)>& study) const {
  if (!is_capsule_ && !is_of_own_engine(trace_->run())) {
    add_not_tried("only runs of `ulpscope train` and capsules can be run again", report);
    return;
  }
  try {
    Trial start;
    if (is_capsule_) {
      start.capsule = path_;
    } else {
      start = trial_from_start(*trace_);
      if (const std::string& backend = trace_->run().backend; backend != "cpu") {
        say("ulpscope: '{}' is of a run on {}, and trials run on the CPU: sums may differ in their last bits", path_,
            one_line(backend));
      } else if (start.cpu.threads == 0) {
        say("ulpscope: '{}' does not tell how many threads the run had: trials have one a core of this machine, and sums may "
            "differ in their last bits",
            path_);
      }
    }
    study(start);
  } catch (const Error& error) {
    say("ulpscope: nothing was tried: {}", one_line(error.what()));
  }
}

std::string TraceOrCapsule::scratch_file(const char* name) {
  if (!scratch_) scratch_.emplace("ulpscope-trials");
  return scratch_->file(name);
}

std::vector<PositionalSpec> traces_and_capsule_positional() {
  std::vector<PositionalSpec> specs = traces_positional();
  specs.front().meaning += "; or a capsule, alone";
  return specs;
}

void check_is_one_for_trials(const Arguments& arguments) {
  for (const char* option : {"--no-trials", "--budget"})
    if (arguments.has(option)) throw usage_error("{} belongs to one trace or capsule, without --follow", option);
}

std::vector<OptionSpec> trial_options() {
  return {{"--no-trials", "", "", "run nothing: only what was recorded"},
          {"--budget", "", "TIME", "for all trials together: 90, 90s, 2m", "60s"}};
}

double trial_budget(const Arguments& arguments) { return arguments.duration("--budget").value_or(60); }

std::function<bool(std::string_view trial)> trial_watch(Progress& progress) {
  return [&progress](std::string_view trial) {
    progress.work(fmt::format("trying {}", trial), 0);
    return true;
  };
}

}  // namespace ulpscope::cli
