#include "ulpscope/studies/nan_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/run/describe_run.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope {

namespace {

std::string failure_text(const RunFailure& failure) {
  switch (failure.way) {
    case RunFailure::Way::loss:
      return fmt::format("loss NaN or Inf from step {} on", failure.step);
    case RunFailure::Way::skipped:
      return fmt::format("every step skipped from step {} on", failure.step);
    default:
      return "a weight is NaN or Inf";
  }
}

std::string detail_of(const FixTrial& trial, const FixStudy& study) {
  const std::optional<double>& guessing = study.guessing;
  switch (trial.result) {
    case FixResult::verified:
      return "stays finite and " + as_reference(study.reference, *trial.end_loss, trial.skipped);
    case FixResult::trains_worse:
      if (guessing && *trial.end_loss >= *guessing)
        return fmt::format("stays finite, but ends no better than guessing, {:.4g}", *guessing);
      return "stays finite, but its loss ends above what counts as training";
    case FixResult::stays_finite:
      return "stays finite; there is no reference to tell whether it trains";
    case FixResult::skips_steps:
      return fmt::format("{} of its last {} steps are skipped", trial.skipped_at_end, FailureWatch::kLast);
    case FixResult::fails:
      return failure_text(*trial.failure);
    case FixResult::fp32_fails:
      return "stays finite, but FP32 does not train either";
    case FixResult::refused:
      return trial.refusal;
    default:
      return "no time was left";
  }
}

// Where nothing was found that trains, what does not may not have had the time to; and where it begins later than the run, from
// weights that may have been ruined by then, nothing is known of what would have kept them from that.
Helps helps(FixResult result, bool has_reference, bool begins_with_run) {
  if (!has_reference && !begins_with_run) return Helps::unknown;
  switch (result) {
    case FixResult::verified:
      return Helps::yes;
    case FixResult::skips_steps:
    case FixResult::fails:
    case FixResult::fp32_fails:
      return Helps::no;
    case FixResult::trains_worse:
      return has_reference ? Helps::no : Helps::unknown;
    default:
      return Helps::unknown;
  }
}

// The first cause is what the run was given, or what changed its memory: a setting can only hide it.
bool comes_from_outside(const Report& report) {
  if (report.causes.empty()) return false;
  const std::string& code = report.findings[report.causes.front().finding].code;
  return code.starts_with("data.") || code == "recording.memory_changed";
}

// The failure of weights as updates left them, to the end of the trace of one rank.
std::optional<RunFailure> failure_of_weights(const Snapshot& trace) {
  const std::vector<TensorInfo>& tensors = trace.tensors();
  std::vector<bool> is_weight(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    is_weight[i] = (tensors[i].role == Role::weight || tensors[i].role == Role::master_weight) &&
                   trace.ops()[tensors[i].op].phase == Phase::optimizer;
  std::vector<std::optional<uint64_t>> since(tensors.size());
  trace.visit_rows_without_histograms({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (!is_weight[row.tensor]) continue;
      if (stored_nonfinite(row, tensors[row.tensor].dtype) == 0)
        since[row.tensor].reset();
      else if (!since[row.tensor])
        since[row.tensor] = row.step;
    }
    return true;
  });
  std::optional<RunFailure> failure;
  for (const std::optional<uint64_t>& step : since)
    if (step && (!failure || *step < failure->step)) failure = {RunFailure::Way::weights, *step, *step};
  return failure;
}

}  // namespace

std::optional<RunFailure> failure_of(const Snapshot& trace) {
  std::optional<RunFailure> failure;
  const auto add = [&](const std::optional<RunFailure>& other) {
    if (other && (!failure || other->step < failure->step)) failure = other;
  };
  const std::vector<int32_t> ranks = trace.ranks();
  for (const int32_t rank : ranks) {
    FailureWatch watch;
    visit_steps_with_losses(trace.of_rank(rank), {}, [&](std::span<const StepRow> rows) {
      // A loss that is not known is none that failed.
      for (const StepRow& row : rows) watch.add(row.step, row.loss_known ? row.loss : 0, row.skipped);
      return true;
    });
    add(watch.failure());
  }
  if (failure) return failure;
  for (const int32_t rank : ranks) add(failure_of_weights(trace.of_rank(rank)));
  return failure;
}

Trial trial_from_start(const Snapshot& trace) {
  const RunInfo run = trace.parts().front().run;
  if (trace.writer_state() == WriterState::alive)
    throw usage_error("'{}' is still being written: its run can be run again when it has ended", trace.path());
  if (!is_of_own_engine(run))
    throw usage_error("'{}' was written by {}: only runs of `ulpscope train` can be run again", trace.path(), run.producer);
  if (!run.parent_run.empty())
    throw usage_error(
        "'{}' begins in step {} of a run whose beginning is not in it: a capsule (`ulpscope train --capsule`) or the "
        "folder of all its traces can be run again",
        trace.path(), run.parent_step);
  if (run.world_size > 1) throw usage_error("'{}' is one of {} ranks: one rank cannot be run again", trace.path(), run.world_size);
  Trial trial;
  trial.beside = trace.path();
  // What arithmetic depends on beside the experiment.
  trial.cpu = cpu_as_in(run);
  Experiment& experiment = trial.experiment.emplace(parse_experiment(run.experiment, trace.path()));
  // A run that was resumed ended where its last part did.
  for (const TracePart& part : trace.parts()) {
    Experiment later = parse_experiment(part.run.experiment, trace.path());
    experiment.training.steps = later.training.steps;
    experiment.training.epochs = later.training.epochs;
    if (!(later == experiment))
      throw usage_error(
          "'{}' was resumed in step {} with other settings: a capsule (`ulpscope train --capsule`) of what came then can be run "
          "again",
          trace.path(), part.steps.first);
  }
  return trial;
}

const FixTrial* add_fixes(const FixStudy& study, Report& report) {
  if (!study.fails_again) {
    add_not_tried(!study.refusal.empty() ? "cannot be run again: " + study.refusal
                  : !study.ran           ? "no time was left"
                  : study.failure        ? "fails in another way: " + failure_text(*study.failure)
                                         : std::string("does not fail again"),
                  report);
    return nullptr;
  }
  report.add_fact("run_again", "fails again: " + failure_text(*study.failure));
  add_reference(study.reference, report);
  std::vector<TriedChange> tried;
  for (const FixTrial& trial : study.trials)
    tried.push_back({.text = trial.fix.text(),
                     .settings = trial.fix.settings,
                     .by = trial.fix.by,
                     .helps = helps(trial.result, study.reference.exists(), study.first_step == 0),
                     .is_type = trial.fix.what == ChangeOf::type,
                     .result = name_of(trial.result),
                     .end_loss = trial.end_loss,
                     .detail = detail_of(trial, study)});
  const bool is_mendable = !comes_from_outside(report);
  add_tried(study.first_step, study.steps, {}, is_mendable ? "" : "The cause is not a setting: a change that helps only hides it.",
            study.reference, std::move(tried), report);
  if (!is_mendable) return nullptr;
  Finding* const cause = report.causes.empty() ? nullptr : &report.findings[report.causes.front().finding];
  const std::vector<SettingChange> advised = cause == nullptr ? std::vector<SettingChange>() : cause->changes;
  const auto place_in_advice = [&](const FixTrial& trial) {
    return std::find_first_of(advised.begin(), advised.end(), trial.fix.by.begin(), trial.fix.by.end()) - advised.begin();
  };
  // One that needs no allowance for steps that it skipped, if there is one, and of such the one that is advised first.
  const FixTrial* verified = nullptr;
  const auto rank = [&](const FixTrial& trial) {
    return std::pair(!study.reference.is_reached_by(*trial.end_loss), place_in_advice(trial));
  };
  for (const FixTrial& trial : study.trials)
    if (trial.result == FixResult::verified && (verified == nullptr || rank(trial) < rank(*verified))) verified = &trial;
  if (verified == nullptr) return nullptr;
  if (cause != nullptr && place_in_advice(*verified) == std::ssize(advised))
    cause->suggestion += verified_advice(verified->fix.settings, *verified->end_loss);
  report.verdict_text += verified_fix(verified->fix.settings, study.steps, *verified->end_loss,
                                      verified->fix.words == study.reference.name ? Reference() : study.reference);
  return verified;
}

}  // namespace ulpscope
