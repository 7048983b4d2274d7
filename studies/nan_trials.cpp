#include "ulpscope/studies/nan_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

std::string failure_text(const RunFailure& failure) {
  switch (failure.way) {
    case RunFailure::Way::loss:
      return fmt::format("the loss is NaN or infinite from step {} on", failure.step);
    case RunFailure::Way::skipped:
      return fmt::format("every step from {} on is skipped", failure.step);
    default:
      return "a weight is NaN or infinite";
  }
}

std::string detail_of(const FixTrial& trial) {
  switch (trial.result) {
    case FixResult::verified:
      return "stays finite and trains as the reference does";
    case FixResult::trains_worse:
      return "stays finite, and ends above what counts as training";
    case FixResult::fails:
      return failure_text(*trial.failure);
    case FixResult::fp32_fails:
      return "stays finite, and the run does not train in FP32 either";
    case FixResult::refused:
      return trial.refusal;
    default:
      return "the time was up";
  }
}

}  // namespace

std::optional<RunFailure> failure_of(const Snapshot& trace) {
  FailureWatch watch;
  trace.of_rank(trace.ranks().front()).visit_steps({}, [&](std::span<const StepRow> rows) {
    // A loss that is not known is none that failed.
    for (const StepRow& row : rows) watch.add(row.step, row.loss_known ? row.loss : 0, row.skipped);
    return true;
  });
  return watch.failure();
}

Trial trial_from_start(const Snapshot& trace) {
  const RunInfo run = trace.parts().front().run;
  if (run.producer != "ulpscope train")
    throw usage_error("'{}' was written by {}: only runs of `ulpscope train` can be run again", trace.path(), run.producer);
  if (!run.parent_run.empty())
    throw usage_error(
        "'{}' begins in step {} of a run whose beginning is not in it: a capsule (`ulpscope train --capsule`) or the "
        "folder of all its traces can be run again",
        trace.path(), run.parent_step);
  if (run.world_size > 1) throw usage_error("'{}' is one of {} ranks: one rank cannot be run again", trace.path(), run.world_size);
  Trial trial;
  trial.experiment = parse_experiment(run.experiment, trace.path());
  return trial;
}

void add_fixes(const FixStudy& study, Report& report) {
  report.add_fact("run_again", !study.refusal.empty() ? fmt::format("cannot be run again: {}; nothing was tried", study.refusal)
                               : study.fails_again    ? fmt::format("fails again: {}", failure_text(*study.failure))
                               : study.failure
                                   ? fmt::format("fails in another way: {}; nothing was tried", failure_text(*study.failure))
                                   : std::string("does not fail again; nothing was tried"));
  if (!study.fails_again) return;
  if (!study.reference.empty()) {
    report.add_fact("reference", study.reference);
    report.add_fact("reference_loss", fmt::format("{:.4g} to {:.4g}", study.reference_start, study.reference_end));
    report.add_fact("counts_as_training", fmt::format("a loss up to {:.4g}", study.bound));
  } else {
    report.add_fact("reference", std::string("none: nothing that was tried trained in FP32"));
  }
  Table table{"fixes",
              fmt::format("What was tried, from step {} on and for {} steps", study.first_step, study.steps),
              {{"change", ColumnKind::text}, {"result", ColumnKind::text}, {"end_loss"}, {"detail", ColumnKind::text}},
              {},
              0,
              "The cheapest for training first. End loss: the median of the last ten."};
  const auto verified = std::find_if(study.trials.begin(), study.trials.end(),
                                     [](const FixTrial& trial) { return trial.result == FixResult::verified; });
  if (verified != study.trials.end())
    report.verdict_text +=
        fmt::format(" Tried: it trains{} with {}.", study.reference == "FP32" ? " as in FP32" : "", verified->fix.text);
  for (const FixTrial& trial : study.trials)
    table.rows.push_back({RowKey{},
                          {trial.fix.text, std::string(name_of(trial.result)),
                           trial.end_loss ? Cell(*trial.end_loss) : Cell(NotApplicable{}), detail_of(trial)}});
  report.tables.insert(report.tables.begin(), std::move(table));
}

}  // namespace ulpscope
