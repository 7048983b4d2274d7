#include "ulpscope/studies/update_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/verbs/updates.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope {

namespace {

constexpr const char* kAsItWas = "as it was";

class UpdateTrials {
 public:
  UpdateTrials(const Trial& start, uint64_t steps, const UpdateTrialOptions& options)
      : trials_(start, steps, options.budget, options.watch), options_(options) {}

  // Its losses, and in `trial` what became of its updates.
  TimedTrials::Outcome run(Experiment experiment, UpdateTrial& trial) {
    experiment.recording = {};
    experiment.recording.phases = {Phase::optimizer};
    TimedTrials::Outcome outcome = trials_.run(trial.text, experiment, options_.scratch);
    if (outcome.is_whole()) outcome.refusal = judge(trial);
    trial.ran = outcome.ran;
    trial.skipped = outcome.skipped;
    trial.refusal = outcome.refusal;
    if (outcome.is_whole() && !outcome.failure) trial.end_loss = outcome.end();
    return outcome;
  }
  // Nothing of it is recorded.
  Reference reference(const Experiment& experiment) {
    const std::string name = format_of(experiment);
    return reference_of(name, trials_.run(name, experiment));
  }

 private:
  // Why its trace cannot be read, or "".
  std::string judge(UpdateTrial& trial) {
    try {
      const Report report = analyze_updates(Snapshot(options_.scratch), options_.analysis);
      trial.lost = find_fact<double>(report, "lost");
      trial.decay_arrived = find_fact<double>(report, "decay_arrived");
      trial.losses = findings_of_losses(report);
      return "";
    } catch (const Error& error) {
      return one_line(error.what());
    }
  }

  TimedTrials trials_;
  const UpdateTrialOptions& options_;
};

constexpr const char *kLost = "updates.lost", *kDecayLost = "updates.decay_lost", *kNoneApplied = "updates.none_applied";

std::string detail_of(const UpdateTrial& trial, const Reference& reference) {
  switch (trial.result) {
    case FixResult::verified:
      return "keeps the updates, and " + as_reference(reference, *trial.end_loss, trial.skipped);
    case FixResult::keeps_updates:
      return "keeps the updates; whether it trains as well is not known";
    case FixResult::other_training:
      return "keeps the updates, but changes the training";
    case FixResult::trains_worse:
      return "keeps the updates, but trains worse than the reference";
    case FixResult::still_loses:
      return fmt::format("still loses {}", trial.losses == std::vector<std::string>{kDecayLost} ? "weight decay" : "updates");
    case FixResult::skips_steps:
      return "skips half or more of its last steps";
    case FixResult::fails:
      return "the loss or a weight is NaN or Inf";
    case FixResult::refused:
      return trial.refusal;
    default:
      return "no time was left";
  }
}

constexpr Template kKeepsOnly{"verdict.keeps_updates",
                              "{settings:and} keeps the updates; there is no reference to tell whether it trains."};

TriedChange tried(const UpdateTrial& trial, std::string result, std::string detail) {
  const bool fails = trial.result == FixResult::fails || trial.result == FixResult::skips_steps ||
                     trial.result == FixResult::still_loses || trial.result == FixResult::trains_worse;
  const Helps helps = trial.result == FixResult::verified ? Helps::yes : fails ? Helps::no : Helps::unknown;
  return {.text = trial.text,
          .settings = trial.settings,
          .by = trial.by,
          .helps = helps,
          .left = trial.result == FixResult::still_loses ? trial.losses : std::vector<std::string>{},
          .result = std::move(result),
          .measures = {trial.lost, trial.decay_arrived},
          .end_loss = trial.end_loss,
          .detail = std::move(detail)};
}

}  // namespace

std::vector<std::string> findings_of_losses(const Report& updates) {
  std::vector<std::string> codes;
  // Where every update was zero, for its gradient or its rate was, no rounding took any.
  if (!find_fact<double>(updates, "lost")) return codes;
  for (const Finding& finding : updates.findings)
    if (finding.severity >= Severity::warning &&
        (finding.code == kLost || finding.code == kDecayLost || finding.code == kNoneApplied))
      codes.push_back(finding.code);
  return codes;
}

UpdateStudy try_updates(const Trial& start, uint64_t steps, const UpdateTrialOptions& options) {
  UpdateStudy study;
  const Experiment original = experiment_of(start);
  study.first_step = start.capsule.empty() ? 0 : read_checkpoint_info(start.capsule).step;
  study.steps = steps;
  study.original.text = kAsItWas;
  UpdateTrials trials(start, steps, options);
  trials.run(original, study.original);
  if (!study.original.ran || study.original.losses.empty()) return study;
  study.original.result = FixResult::still_loses;

  if (const std::optional<Experiment> wide = wider_than(original)) {
    study.reference = trials.reference(*wide);
  } else {
    study.reference.lack = "no format is wider than FP64";
  }
  for (const Fix& fix : update_fixes_of(original, options.advised)) {
    UpdateTrial& trial = study.trials.emplace_back();
    trial.text = fix.text();
    trial.words = fix.words;
    trial.settings = fix.settings;
    trial.by = fix.by;
    const TimedTrials::Outcome outcome = trials.run(fix.experiment, trial);
    trial.result = !outcome.refusal.empty()                                          ? FixResult::refused
                   : !outcome.ran                                                    ? FixResult::not_tried
                   : outcome.failure                                                 ? FixResult::fails
                   : outcome.skipped_at_end > 0                                      ? FixResult::skips_steps
                   : !trial.losses.empty()                                           ? FixResult::still_loses
                   : is_other_training(fix.what)                                     ? FixResult::other_training
                   : !study.reference.exists()                                       ? FixResult::keeps_updates
                   : study.reference.is_reached_by(*trial.end_loss, outcome.skipped) ? FixResult::verified
                                                                                     : FixResult::trains_worse;
  }
  return study;
}

void add_trials(const UpdateStudy& study, Report& report) {
  const UpdateTrial& original = study.original;
  if (original.result != FixResult::still_loses) {
    add_not_tried(!original.refusal.empty() ? "cannot be run again: " + original.refusal
                  : !original.ran           ? std::string("no time was left")
                                            : std::string("loses nothing again"),
                  report);
    return;
  }
  report.add_fact("run_again", std::string("loses updates again"));
  add_reference(study.reference, report);
  std::vector<TriedChange> changes{tried(original, "", "")};
  for (const UpdateTrial& trial : study.trials)
    changes.push_back(tried(trial, name_of(trial.result), detail_of(trial, study.reference)));
  add_tried(study.first_step, study.steps,
            {{"lost", ColumnKind::number, Unit::share}, {"decay_arrived", ColumnKind::number, Unit::share}},
            "Stochastically rounded updates arrive on average, however many leave the weight as it was.", study.reference,
            std::move(changes), report);
  const auto first = [&](FixResult result) {
    const auto found =
        std::find_if(study.trials.begin(), study.trials.end(), [&](const UpdateTrial& trial) { return trial.result == result; });
    return found == study.trials.end() ? nullptr : &*found;
  };
  if (const UpdateTrial* const verified = first(FixResult::verified))
    report.verdict_text += verified_fix(verified->settings, study.steps, *verified->end_loss, study.reference);
  else if (const UpdateTrial* const keeps = first(FixResult::keeps_updates))
    report.verdict_text += kKeepsOnly({{"settings", Value::list({keeps->settings.begin(), keeps->settings.end()})}});
}

}  // namespace ulpscope
