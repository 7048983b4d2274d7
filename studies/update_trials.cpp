#include "ulpscope/studies/update_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/updates.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

namespace {

constexpr const char* kAsItWas = "as it was";

std::optional<double> share_in(const Report& report, std::string_view name) {
  for (const Quantity& fact : report.facts)
    if (const double* const value = std::get_if<double>(&fact.value); value && fact.name == name) return *value;
  return {};
}

class UpdateTrials {
 public:
  UpdateTrials(const Trial& start, uint64_t steps, const UpdateTrialOptions& options)
      : trials_(start, steps, options.budget, options.watch), scratch_(options.scratch) {}

  // Its losses, and in `trial` what became of its updates.
  TimedTrials::Outcome run(Experiment experiment, UpdateTrial& trial) {
    experiment.training.evaluation = Evaluation::never;
    experiment.recording = {};
    experiment.recording.phases = {Phase::optimizer};
    TimedTrials::Outcome outcome = trials_.run(trial.text, experiment, scratch_);
    trial.ran = outcome.ran;
    trial.refusal = outcome.refusal;
    if (!outcome.is_whole()) return outcome;
    const Report report = analyze_updates(Snapshot(scratch_));
    trial.lost = share_in(report, "lost");
    trial.decay_arrived = share_in(report, "decay_arrived");
    if (!outcome.failure) trial.end_loss = outcome.end();
    loses_ = tells_of_losses(report);
    return outcome;
  }
  bool loses() const { return loses_; }  // the last one

 private:
  TimedTrials trials_;
  const std::string& scratch_;
  bool loses_ = false;
};

std::string detail_of(const UpdateTrial& trial) {
  switch (trial.result) {
    case FixResult::verified:
      return "keeps the updates, and trains as the reference does";
    case FixResult::trains_worse:
      return "keeps the updates, and ends above what counts as training";
    case FixResult::still_loses:
      return "still loses updates or weight decay";
    case FixResult::fails:
      return "the loss or a weight is NaN or infinite";
    case FixResult::refused:
      return trial.refusal;
    default:
      return "the time was up";
  }
}

std::vector<Cell> row_of(const UpdateTrial& trial, Cell result, std::string detail) {
  const auto cell = [](const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); };
  return {trial.text, std::move(result), cell(trial.lost), cell(trial.decay_arrived), cell(trial.end_loss), std::move(detail)};
}

}  // namespace

bool tells_of_losses(const Report& updates) {
  // Where every update was zero, for its gradient or its rate was, no rounding took any.
  return share_in(updates, "lost") && std::any_of(updates.findings.begin(), updates.findings.end(), [](const Finding& finding) {
           return finding.severity >= Severity::warning &&
                  (finding.code == "updates.lost" || finding.code == "updates.decay_lost" ||
                   finding.code == "updates.none_applied");
         });
}

UpdateStudy try_updates(const Trial& start, uint64_t steps, const UpdateTrialOptions& options) {
  UpdateStudy study;
  const Experiment original = experiment_of(start);
  study.first_step = start.capsule.empty() ? 0 : read_checkpoint_info(start.capsule).step;
  study.steps = steps;
  study.original.text = kAsItWas;
  UpdateTrials trials(start, steps, options);
  trials.run(original, study.original);
  if (!study.original.ran || !trials.loses()) return study;
  study.original.result = FixResult::still_loses;

  const bool is_narrow_run = dtype_of(original.precision) != DType::f32;
  Experiment wide = original;
  wide.precision = is_narrow_run ? Precision::fp32 : Precision::fp64;
  wide.scaler.enabled = Switch::off;
  UpdateTrial reference;
  reference.text = is_narrow_run ? "FP32" : "FP64";
  const TimedTrials::Outcome best = trials.run(wide, reference);
  if (best.trains()) {
    study.reference = reference.text;
    study.reference_start = best.losses.front();
    study.reference_end = best.end();
    study.bound = study.reference_end + kFixMargin * (study.reference_start - study.reference_end);
  }
  for (const Fix& fix : update_fixes_of(original)) {
    UpdateTrial& trial = study.trials.emplace_back();
    trial.text = fix.text;
    const TimedTrials::Outcome outcome = trials.run(fix.experiment, trial);
    trial.result = !outcome.refusal.empty()                                   ? FixResult::refused
                   : !outcome.ran                                             ? FixResult::not_tried
                   : outcome.failure                                          ? FixResult::fails
                   : trials.loses()                                           ? FixResult::still_loses
                   : study.reference.empty() || trial.end_loss <= study.bound ? FixResult::verified
                                                                              : FixResult::trains_worse;
  }
  return study;
}

void add_trials(const UpdateStudy& study, Report& report) {
  const UpdateTrial& original = study.original;
  report.add_fact("run_again", !original.refusal.empty()
                                   ? fmt::format("cannot be run again: {}; nothing was tried", original.refusal)
                               : !original.ran                             ? "the time was up; nothing was tried"
                               : original.result == FixResult::still_loses ? "loses updates again"
                                                                           : "loses nothing again; nothing was tried");
  if (original.result != FixResult::still_loses) return;
  if (study.reference.empty()) {
    report.add_fact("reference", std::string("none: it did not train in a wider format either"));
  } else {
    report.add_fact("reference", study.reference);
    report.add_fact("reference_loss", fmt::format("{:.4g} to {:.4g}", study.reference_start, study.reference_end));
    report.add_fact("counts_as_training", fmt::format("a loss up to {:.4g}", study.bound));
  }
  Table table{"fixes",
              fmt::format("What was tried, from step {} on and for {} steps", study.first_step, study.steps),
              {{"change", ColumnKind::text},
               {"result", ColumnKind::text},
               {"lost", ColumnKind::number, Unit::share},
               {"decay_arrived", ColumnKind::number, Unit::share},
               {"end_loss"},
               {"detail", ColumnKind::text}},
              {},
              0,
              "The cheapest for training first. Updates that are rounded stochastically arrive on average, however many leave the "
              "weight as it was. End loss: the median of the last ten."};
  table.rows.push_back({RowKey{}, row_of(original, NotApplicable{}, "")});
  for (const UpdateTrial& trial : study.trials)
    table.rows.push_back({RowKey{}, row_of(trial, std::string(name_of(trial.result)), detail_of(trial))});
  const auto verified = std::find_if(study.trials.begin(), study.trials.end(),
                                     [](const UpdateTrial& trial) { return trial.result == FixResult::verified; });
  if (verified != study.trials.end())
    report.verdict_text += fmt::format(" Tried: it keeps its updates{} with {}.",
                                       study.reference.empty() ? "" : " and trains as in " + study.reference, verified->text);
  report.tables.insert(report.tables.begin(), std::move(table));
}

}  // namespace ulpscope
