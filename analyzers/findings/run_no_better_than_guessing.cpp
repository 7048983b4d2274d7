#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/data_moments.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope::findings {

namespace {

constexpr Template kMeanLoss{
    "loss.of_the_mean",
    "its mean loss over the last {steps} steps is {loss:.4g}, and predicting the mean target ({mean:.4g}) costs {guessing:.4g}"};
constexpr Template kLearnedSamples{
    "run.no_better_than_guessing.learned_samples",
    "The run learned its training samples only: test accuracy is {accuracy:.3g%}, and guessing among {classes} classes gives "
    "{guessing_accuracy:.3g%}."};
constexpr Template kTrainingLosses{"run.no_better_than_guessing.training_losses",
                                   "The median of the last {losses} training losses is {median:.4g}; guessing gives "
                                   "{guessing:.4g}."};
constexpr Template kGuessesTestSet{"run.no_better_than_guessing.test_set",
                                   "The run is no better than guessing: test accuracy is {accuracy:.3g%}, and guessing among "
                                   "{classes} classes gives {guessing_accuracy:.3g%}."};
constexpr Template kAllClassesAlike{"run.no_better_than_guessing.smoothed_labels",
                                    "There is nothing to learn: the labels are smoothed so far that all {classes} classes are "
                                    "alike."};
constexpr Template kLossesOfGuessing{"loss.of_guessing",
                                     "its last {losses} losses are {least:.4g} or more, and guessing among {classes} classes "
                                     "gives log({classes}) = {guessing:.4g}"};
constexpr Template kMedianOfGuessing{"loss.median_of_guessing",
                                     "the median of its last {losses} losses is {median:.4g}, and guessing among {classes} classes "
                                     "gives log({classes}) = {guessing:.4g}"};
constexpr Template kNoBetterThanGuessing{"run.no_better_than_guessing", "The run is no better than guessing: {comparison}."};
constexpr Template kWorseThanGuessing{"run.no_better_than_guessing.worse", "The run ended worse than guessing: {comparison}."};
constexpr Template kHardlyBetterThanGuessing{"run.no_better_than_guessing.hardly_better",
                                             "The run ended hardly better than guessing: {comparison}."};
constexpr Template kWrongByFar{"run.no_better_than_guessing.wrong_by_far",
                               "Test accuracy is {accuracy:.3g%}: what the model gets wrong costs that much."};
constexpr Template kAccuracyAllTheSame{"run.no_better_than_guessing.accuracy", "Test accuracy is {accuracy:.3g%}."};
constexpr Template kLowerRateOfPeak{"advice.lower_rate_of_peak",
                                    "Lower the learning rate{rate:brackets}, or warm it up: the loss rose from {first:.4g} (step "
                                    "{first_step}) to {peak:.4g} (step {peak_step})."};
constexpr Template kSmoothedFar{"run.no_better_than_guessing.smoothed_far",
                                "The labels are smoothed so far that even a model that knows them all has a loss of {least:.6g}; "
                                "guessing has {guessing:.6g}."};
constexpr Template kNotYet{"run.no_better_than_guessing.yet", "The run is not better than guessing yet: {comparison}."};
constexpr Template kHardlyYet{"run.no_better_than_guessing.hardly_yet",
                              "The run is hardly better than guessing yet: {comparison}."};
constexpr Template kAccuracyNotYet{"run.no_better_than_guessing.accuracy_yet",
                                   "The run is not better than guessing yet: test accuracy is {accuracy:.3g%}, and guessing among "
                                   "{classes} classes gives {guessing_accuracy:.3g%}."};
constexpr Template kLossesStillFall{"run.no_better_than_guessing.still_falls",
                                    "The loss still falls: its median is {before:.4g} over the middle third of {steps} steps, and "
                                    "{last:.4g} over the last."};
constexpr Template kTrainLonger{"advice.train_longer", "Train for more steps."};
constexpr Template kNoUpdate{"advice.no_update_recorded",
                             "A gradient came to `{parameter}`, and no update was recorded: check that the optimizer has it, and "
                             "finds its gradient when it steps."};
constexpr Template kBeginSmaller{"advice.begin_with_smaller_weights",
                                 "Begin with smaller weights, in the last layer above all: the loss was {first:.4g} at first."};
constexpr Template kLookAtRate{"advice.look_at_rate", "Check the learning rate{rate:brackets} and its schedule."};
constexpr Template kNormalizeInputs{"advice.normalize_inputs",
                                    "Normalize the inputs: {place} has mean {mean:.3g} and standard deviation {deviation:.3g}."};
constexpr Template kConstantInputs{"advice.constant_inputs",
                                   "Check the data: every element of {place} is {value:.4g}, so that samples look alike."};
constexpr Template kStandardizeTargets{
    "advice.standardize_these_targets",
    "Standardize the targets: {place} has mean {mean:.3g} and standard deviation {deviation:.3g}."};
constexpr Template kFeaturesSaturate{"advice.features_saturate",
                                     "Check the range of the inputs: features far from 1 saturate a model."};
constexpr Template kCompareTestData{"advice.compare_test_data",
                                    "Compare training and test data: their labels, and how they are normalized."};
constexpr Template kOverfitLess{"advice.overfit_less", "More samples, a smaller model or fewer epochs reduce overfitting."};
constexpr Template kSmoothLabelsLess{"advice.smooth_labels_less", "Lower the label smoothing."};

// A loss that was far above the first one did not come from where the run began.
bool was_thrown_up(const StepTotals& steps) {
  constexpr double kPeak = 10;
  return steps.peak && steps.first.loss > 0 && steps.peak->loss > kPeak * steps.first.loss;
}

// A parameter that had a gradient, in a run in which everything was recorded and no update was.
std::optional<uint32_t> gradient_without_updates(const RunFacts& facts) {
  if (!facts.context.trace.run().filters.empty()) return std::nullopt;
  std::optional<uint32_t> gradient;
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    if (facts.selection.op(i).kind == OpKind::update) return std::nullopt;
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!gradient && is_gradient(tensor.role) && !tensor.parameter.empty()) gradient = i;
  }
  return gradient;
}

Advice advice_on_learning(const RunFacts& facts) {
  if (const auto gradient = gradient_without_updates(facts))
    return kNoUpdate({{"parameter", Name{NameKind::parameter, facts.selection.tensor(*gradient).parameter}}});
  const StepTotals& steps = facts.judged_steps();
  const SettingMention rate = learning_rate_now(facts);
  if (was_thrown_up(steps)) {
    Advice advice;
    advice.text = kLowerRateOfPeak({{"rate", advice.lower(rate)},
                                    {"first", steps.first.loss},
                                    {"first_step", ordinal(steps.first.step)},
                                    {"peak", steps.peak->loss},
                                    {"peak_step", ordinal(steps.peak->step)}});
    advice.note({.kind = SettingKind::warmup, .way = SettingChange::Way::raise});
    return advice;
  }
  if (Advice why = why_updates_are_short(facts); !why.text.empty()) return why;
  const Sentence look = kLookAtRate({{"rate", rate}});
  const auto inputs = input_moments(facts);
  if (!inputs) return Sentences{look, kFeaturesSaturate()};
  const auto constant = std::find_if(inputs->begin(), inputs->end(),
                                     [](const DataMoments& input) { return input.is_constant() && !input.is_target; });
  if (constant != inputs->end() && inputs->size() <= 2)
    return Sentences{kConstantInputs({{"place", tensor_place(facts.selection, constant->tensor)}, {"value", constant->mean}})};
  const auto far = std::find_if(inputs->begin(), inputs->end(),
                                [](const DataMoments& input) { return !input.is_constant() && input.is_far_from_1(); });
  if (far == inputs->end()) return look;
  return Sentences{
      (far->is_target ? kStandardizeTargets : kNormalizeInputs)(
          {{"place", tensor_place(facts.selection, far->tensor)}, {"mean", far->mean}, {"deviation", far->deviation()}}),
      look};
}

constexpr uint64_t kShort = 200;  // steps

// A short run whose losses still fall, by more than batches differ, has not failed: what it says and nothing that keeps updates
// short.
Sentence losses_still_fall(const RunFacts& facts) {
  constexpr double kDeviations = 2.5;   // of Mann and Whitney's U: one in 160 by chance
  constexpr double kLeastFall = 0.005;  // of the loss, in a third of the run
  const std::vector<StepLoss> losses = losses_of(facts, facts.judged_range());
  if (facts.broke() || losses.size() < kLeastJudged || losses.size() >= kShort || was_thrown_up(facts.judged_steps()) ||
      !why_updates_are_short(facts).text.empty())
    return {};
  std::vector<double> middle, last;
  for (size_t i = losses.size() / 3; i < losses.size(); ++i) (3 * i < 2 * losses.size() ? middle : last).push_back(losses[i].loss);
  const double before = median(middle), now = median(last);
  if (!(now < (1 - kLeastFall) * before) || rank_sum_deviations(middle, last) > -kDeviations) return {};
  return kLossesStillFall({{"before", before}, {"last", now}, {"steps", losses.size()}});
}

// The last one; what has no number for its loss says nothing of what was learned.
std::optional<double> test_accuracy(const Snapshot& trace) {
  const EventRow *accuracy = nullptr, *loss = nullptr;
  for (const EventRow& event : trace.events()) {
    if (event.metric == MetricKind::evaluation_accuracy) accuracy = &event;
    if (event.metric == MetricKind::evaluation_loss) loss = &event;
  }
  if (accuracy == nullptr || (loss != nullptr && !std::isfinite(loss->value))) return std::nullopt;
  return accuracy->value;
}

// A loss that is so many times that of guessing is told as worse. Some samples of a test set may be right then: the others are
// wrong for sure.
constexpr double kWorse = 2;

// Against one number for all targets.
void find_mean(const RunFacts& facts, Findings& found) {
  const MeanGuess* const guess = facts.mean_guess();
  if (guess == nullptr || !guess->is_not_beaten()) return;
  const Argument comparison{
      "comparison",
      kMeanLoss({{"loss", guess->run_loss}, {"steps", guess->steps}, {"mean", guess->mean}, {"guessing", guess->loss}})};
  std::vector<Evidence> evidence{{key_of_step(facts.context.trace, facts.judged_steps().last.step),
                                  {{"mean_loss", guess->run_loss}, {"loss_of_the_mean", guess->loss}}}};
  if (const Sentence falls = losses_still_fall(facts); !falls.empty() && !guess->lies_far()) {
    found.add(Severity::info, Sentences{kNotYet({comparison}), falls}, std::move(evidence), kTrainLonger());
    return;
  }
  found.add(Severity::error, (guess->run_loss > kWorse * guess->loss ? kWorseThanGuessing : kNoBetterThanGuessing)({comparison}),
            std::move(evidence), guess->lies_far() ? Advice() : advice_on_learning(facts));
}

// The first loss is so many times that of guessing that the logits are far too large.
bool begins_far(const StepTotals& steps, double guess) {
  constexpr double kFar = 10;
  return steps.first.step == 0 && steps.first.loss_known && steps.first.loss > kFar * guess && !was_thrown_up(steps);
}

void find_guessing(const RunFacts& facts, Findings& found) {
  constexpr double kBetter =
      0.01;  // a small test set is that far from guessing by chance, but among many classes not by as much again
  constexpr double kLearned = 0.5;   // of the loss of guessing: what is less has learned what it was shown
  constexpr double kNothing = 1e-6;  // of the loss of guessing: rounding errors in FP32
  const AnalysisContext& context = facts.context;
  if (context.options.restricts_steps()) return;  // a beginning is no result
  const StepTotals& steps = facts.judged_steps();
  if (steps.count >= kLeastJudged) find_mean(facts, found);
  const std::optional<Guessing> guessing = guessing_of(context);
  if (!guessing || steps.count < kLeastJudged || steps.last_losses.size() < kEndLosses) return;
  const auto classes = static_cast<uint64_t>(guessing->classes);
  const std::optional<double> accuracy = test_accuracy(context.trace);
  const std::vector<double> last = last_losses(steps);
  const RowKey last_step = key_of_step(context.trace, steps.last.step);
  if (accuracy && *accuracy <= guessing->accuracy() + std::min(kBetter, guessing->accuracy())) {
    if (guessing->loss && median(last) < kLearned * *guessing->loss) {
      found.add(Severity::error,
                {kLearnedSamples({{"accuracy", {*accuracy, Unit::share}},
                                  {"classes", classes},
                                  {"guessing_accuracy", {1 / guessing->classes, Unit::share}}}),
                 kTrainingLosses({{"losses", kEndLosses}, {"median", median(last)}, {"guessing", *guessing->loss}})},
                {{last_step, {{"test_accuracy", *accuracy, Unit::share}, {"of_guessing", guessing->accuracy(), Unit::share}}}},
                Sentences{kCompareTestData(), kOverfitLess()});
      return;
    }
    const Sentence falls = losses_still_fall(facts);
    Sentences title =
        (falls.empty() ? kGuessesTestSet : kAccuracyNotYet)({{"accuracy", {*accuracy, Unit::share}},
                                                             {"classes", classes},
                                                             {"guessing_accuracy", {1 / guessing->classes, Unit::share}}});
    title += falls;
    found.add(falls.empty() ? Severity::error : Severity::info, std::move(title),
              {{last_step, {{"test_accuracy", *accuracy, Unit::share}, {"of_guessing", guessing->accuracy(), Unit::share}}}},
              falls.empty() ? advice_on_learning(facts) : Advice(kTrainLonger()));
    return;
  }
  if (!guessing->loss) return;
  const double guess = *guessing->loss, least = *std::min_element(last.begin(), last.end());
  // Batches differ: of ten losses that guessing gives, the least is below their mean, and half of them are.
  const double won = guess - guessing->least;
  if (!(won > kNothing * guess)) {
    found.add(Severity::error, kAllClassesAlike({{"classes", classes}}),
              {{last_step, {{"loss_of_guessing", guess}, {"least_possible_loss", guessing->least}}}}, kSmoothLabelsLess());
    return;
  }
  // Batches may differ by more than what little is left to win.
  constexpr double kLittle = 0.05;
  const bool is_smoothed_far = won < kLittle * guess;
  const bool is_as_bad =
      is_smoothed_far ? median(last) >= guess - 0.1 * won : least >= guess - 0.1 * won && median(last) >= guess - 0.01 * won;
  // Of a model that is sure of what is wrong the loss is that bad while much of the test set is right.
  const bool is_worse = least > kWorse * guess;
  const bool guesses = !accuracy || *accuracy < 2 * guessing->accuracy();
  // Where something is known that keeps updates short, less is sure.
  const bool is_nearly_as_bad = least >= guess - 0.1 * won && median(last) >= guess - 0.05 * won;
  const bool hardly_better =
      (is_as_bad && guesses) || ((is_as_bad || (is_nearly_as_bad && guesses)) && !why_updates_are_short(facts).text.empty());
  if (!hardly_better && !(accuracy && is_worse)) return;
  const Argument losses{"losses", kEndLosses}, of_classes{"classes", classes}, of_guessing{"guessing", guess};
  const Sentence comparison = least < guess ? kMedianOfGuessing({losses, {"median", median(last)}, of_classes, of_guessing})
                                            : kLossesOfGuessing({losses, {"least", least}, of_classes, of_guessing});
  std::vector<Evidence> evidence{{last_step, {{"least_loss", least}, {"loss_of_guessing", guess}}}};
  if (const Sentence falls = losses_still_fall(facts); !falls.empty() && !is_worse && !is_smoothed_far) {
    Sentences title{(least < guess || accuracy ? kHardlyYet : kNotYet)({{"comparison", comparison}}), falls};
    if (accuracy) title += kAccuracyAllTheSame({{"accuracy", {*accuracy, Unit::share}}});
    found.add(Severity::info, std::move(title), std::move(evidence), kTrainLonger());
    return;
  }
  const bool is_hardly_better = accuracy || median(last) < guess || (is_smoothed_far && least < guess);
  Sentences title = (is_worse           ? kWorseThanGuessing
                     : is_hardly_better ? kHardlyBetterThanGuessing
                                        : kNoBetterThanGuessing)({{"comparison", comparison}});
  if (accuracy) title += (guesses ? kAccuracyAllTheSame : kWrongByFar)({{"accuracy", {*accuracy, Unit::share}}});
  if (is_smoothed_far) title += kSmoothedFar({{"least", guessing->least}, {"guessing", guess}});
  // A short run that began to learn may go on to.
  const bool may_learn = steps.count < kShort && median(last) < guess && why_updates_are_short(facts).text.empty();
  found.add(guesses && !may_learn ? Severity::error : Severity::warning, std::move(title), std::move(evidence),
            is_smoothed_far            ? Advice(kSmoothLabelsLess())
            : begins_far(steps, guess) ? Advice(kBeginSmaller({{"first", steps.first.loss}}))
                                       : advice_on_learning(facts));
}

}  // namespace

extern constinit const FindingRule run_no_better_than_guessing{
    .code = "run.no_better_than_guessing",
    .part = Part::run,
    .raised =
        "The loss of a classifier ended no lower than that of guessing among its classes, or the mean squared error no lower than "
        "that of predicting the mean target; or the test accuracy is that of guessing.",
    .meaning = "The run learned nothing that generalizes.",
    .help = "Check the other findings; a learning rate that is too low or too high does this too.",
    .explains = {"run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/logits_saturate.toml",
    .find = find_guessing,
};

}  // namespace ulpscope::findings
