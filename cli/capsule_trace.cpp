#include "ulpscope/cli/capsule_trace.h"

#include "ulpscope/base/error.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope::cli {

Snapshot record_capsule(const std::string& capsule, const ScratchFolder& folder, Progress& progress) {
  Trial trial;
  trial.capsule = capsule;
  trial.trace_path = folder.file("capsule.h5");
  trial.level = RecordLevel::stats;
  trial.watch = [&](std::string_view work, double share) { progress.work(work, share); };
  const TrialOutcome outcome = ulpscope::run(trial);
  if (outcome.trace.failed) throw failed_error("the capsule's steps could not be recorded: {}", outcome.trace.failure);
  if (!outcome.is_as_before())
    say("ulpscope: warning: the steps of '{}' do not come out as they were (`ulpscope replay`)", capsule);
  return Snapshot(trial.trace_path);
}

}  // namespace ulpscope::cli
