#include "ulpscope/analyzers/judgements/run_facts.h"

#include <algorithm>
#include <optional>

#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/gradients_read.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/leap.h"
#include "ulpscope/analyzers/judgements/learning_rates.h"
#include "ulpscope/analyzers/judgements/op_errors.h"
#include "ulpscope/analyzers/judgements/quantization_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

struct RunFacts::Made {
  std::optional<StepTotals> steps, judged_steps;
  std::optional<PrecisionFacts> precision;
  std::optional<RangeJudgement> ranges;
  std::optional<SilentOutputs> silent;
  std::optional<GradientJudgement> gradients;
  std::optional<QuantizationJudgement> quantized;
  std::optional<ScaleJudgement> scale;
  std::optional<UpdateJudgement> updates;
  std::optional<GradientsRead> gradients_read;
  std::optional<std::optional<Leap>> leap;
  std::optional<std::vector<LearningRate>> learning_rates;
  std::optional<std::vector<OpError>> op_errors;
  std::optional<ValueLosses> value_losses;
  std::optional<std::optional<MeanGuess>> mean_guess;
};

namespace {

// What is made of `arguments`, once.
template <typename T, typename... Arguments>
const T& once(std::optional<T>& made, Arguments&&... arguments) {
  if (!made) made.emplace(std::forward<Arguments>(arguments)...);
  return *made;
}

}  // namespace

RunFacts::RunFacts(const AnalysisContext& of, const StepFacts& steps, const Seen& seen, RunMemory& kept)
    : context(of), selection(of.selection), step_facts(steps), memory(kept), seen_(seen), made_(std::make_unique<Made>()) {
  memory.follow(context);
}
RunFacts::~RunFacts() = default;

const StepTotals& RunFacts::steps() const {
  if (!made_->steps) made_->steps = step_facts.whole();
  return *made_->steps;
}

const StepTotals& RunFacts::judged_steps() const {
  if (!made_->judged_steps) made_->judged_steps = step_facts.judged();
  return *made_->judged_steps;
}
StepRange RunFacts::judged_range() const {
  return {context.options.steps.first, std::min(context.options.steps.last, step_facts.broken_from())};
}

bool RunFacts::broke() const { return step_facts.broken_from() != UINT64_MAX; }

const PrecisionFacts& RunFacts::precision() const {
  if (!made_->precision) made_->precision = precision_facts(context.trace, step_facts);
  return *made_->precision;
}

const FittingScales& RunFacts::fitting() const { return *seen_.fitting; }
const RangeJudgement& RunFacts::ranges() const {
  return once(made_->ranges, context, step_facts, *seen_.ranges, memory.beginnings);
}
const SilentOutputs& RunFacts::silent() const { return once(made_->silent, context, ranges()); }
const GradientJudgement& RunFacts::gradients() const { return once(made_->gradients, context, ranges()); }
const QuantizationJudgement& RunFacts::quantized() const { return once(made_->quantized, context, ranges()); }
const ScaleJudgement& RunFacts::scale() const {
  return once(made_->scale, context, steps(), judged_steps(), step_facts.broken_from(), *seen_.ranges, fitting());
}
bool RunFacts::sees_updates() const { return seen_.updates != nullptr; }
const UpdateJudgement& RunFacts::updates() const { return once(made_->updates, context, steps(), judged_steps(), *seen_.updates); }
const GradientsRead& RunFacts::gradients_read() const {
  if (!made_->gradients_read) made_->gradients_read = ulpscope::gradients_read(*this);
  return *made_->gradients_read;
}
const Leap* RunFacts::leap() const {
  const std::optional<Leap>& leap = made_->leap ? *made_->leap : made_->leap.emplace(leap_of(*this));
  return leap ? &*leap : nullptr;
}
const std::vector<LearningRate>& RunFacts::learning_rates() const {
  if (!made_->learning_rates) made_->learning_rates = learning_rates_of(*this);
  return *made_->learning_rates;
}
const ValueLosses& RunFacts::value_losses() const {
  if (!made_->value_losses) made_->value_losses = value_losses_of(*this);
  return *made_->value_losses;
}

const std::vector<OpError>& RunFacts::op_errors() const {
  if (!made_->op_errors) made_->op_errors = op_errors_of(*this);
  return *made_->op_errors;
}
const MeanGuess* RunFacts::mean_guess() const {
  const std::optional<MeanGuess>& guess = made_->mean_guess ? *made_->mean_guess : made_->mean_guess.emplace(mean_guess_of(*this));
  return guess ? &*guess : nullptr;
}

}  // namespace ulpscope
