// What verbs share that answer from a trace or a capsule, and by trials of its run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/scratch_folder.h"
#include "ulpscope/cli/verb.h"
#include "ulpscope/studies/trial.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope::cli {

class TraceOrCapsule {
 public:
  // Of a capsule the steps are run again and recorded; says so where they do not come out as they were. `progress` outlives it.
  TraceOrCapsule(const std::string& path, Progress& progress);

  const Snapshot& trace() const { return *trace_; }
  bool is_capsule() const { return is_capsule_; }
  // The report on it, of which the source is what was asked for. Throws Error (usage) where there is nothing that options ask for.
  Report report(const AnalysisOptions& options,
                const std::function<Report(const Snapshot&, const AnalysisOptions&)>& analyze) const;
  // Calls `study` with where trials start; says why nothing was tried where they cannot: in the report where the trace is of
  // another producer, whose runs nothing here can run.
  void try_changes(Report& report, const std::function<void(const Trial& start)>& study) const;
  std::string scratch_file(const char* name);  // that is gone with this

 private:
  void record(Progress& progress);

  const std::string path_;
  const bool is_capsule_;
  std::optional<ScratchFolder> scratch_;
  std::optional<Snapshot> trace_;
};

// TRACE..., or one capsule.
std::vector<PositionalSpec> traces_and_capsule_positional();
// Throws Error (usage) where the options of trials are given for several traces, or with --follow.
void check_is_one_for_trials(const Arguments& arguments);
// --no-trials and --budget.
std::vector<OptionSpec> trial_options();
double trial_budget(const Arguments& arguments);
// Shows each trial that begins.
std::function<bool(std::string_view trial)> trial_watch(Progress& progress);

}  // namespace ulpscope::cli
