#include "ulpscope/analyzers/judgements/guesses.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/training_loss.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

// How many classes the op that computes the loss tells apart; 0: that is not known.
double classes_of(const AnalysisContext& context, uint32_t loss) {
  const std::span<const uint32_t> read = tensors_read_as(context, loss, Meaning::value);
  if (read.empty()) return 0;
  const TensorInfo& logits = context.selection.tensor(read.front());
  if (logits.shape.size() < 2) return 0;
  // A fused loss takes the logarithms itself; apart, anything may stand in their place.
  const OpFunction made_by = context.selection.op(read.front()).function;
  if (context.trace.ops()[loss].function == OpFunction::nll && made_by != OpFunction::log_softmax) return 0;
  return static_cast<double>(logits.shape[1]);
}

// Of a target that has `smoothing` of its share spread over all classes alike: no loss of it is less.
double entropy_of_smoothed(double classes, double smoothing) {
  const double other = smoothing / classes, own = 1 - smoothing + other;
  return -(own > 0 ? own * std::log(own) : 0) - (other > 0 ? (classes - 1) * other * std::log(other) : 0);
}

// By a factor, after it was computed, and perhaps after a cast.
bool is_multiplied(const AnalysisContext& context, uint32_t loss) {
  const std::span<const GraphEdge> uses = context.trace.graph().uses(loss);
  return std::any_of(uses.begin(), uses.end(), [&](const GraphEdge& edge) {
    const OpInfo& consumer = context.trace.ops()[edge.consumer];
    if (consumer.phase != Phase::loss || edge.slot != 0) return false;
    return !has_trait(consumer.function, kSameValues) ||
           (context.trace.graph().is_within_step(edge) && is_multiplied(context, edge.consumer));
  });
}

// What is known of the targets of a step.
struct Targets {
  double count = 0, sum = 0, squares = 0;
};

}  // namespace

std::optional<MeanGuess> mean_guess_of(const RunFacts& facts) {
  const AnalysisContext& context = facts.context;
  const auto loss = mean_loss_op(context, {OpFunction::mse});
  if (!loss || is_multiplied(context, *loss)) return std::nullopt;
  const std::span<const uint32_t> target = sources_read_as(context, *loss, Meaning::target);
  if (target.size() != 1 || context.selection.op(target.front()).kind != OpKind::source) return std::nullopt;
  std::map<uint64_t, Targets> of_steps;
  bool is_known = true;
  const StepRange judged = facts.judged_range();
  for (const DataRow& row : facts.memory.data.rows(context, target.front(), context.trace.ranks().front())) {
    if (!judged.contains(row.step)) continue;
    is_known = is_known && row.has_values && row.nonfinite == 0;
    Targets& targets = of_steps[row.step];
    targets.count += static_cast<double>(row.count);
    targets.sum += row.sum;
    targets.squares += row.sum_of_squares;
  }
  const StepTotals& steps = facts.judged_steps();
  const size_t n = steps.last_losses.size();
  if (!is_known || n == 0 || of_steps.size() != steps.count || of_steps.size() < n) return std::nullopt;
  Targets all;
  for (const auto& [step, targets] : of_steps) {
    all.count += targets.count;
    all.sum += targets.sum;
  }
  MeanGuess guess{all.sum / all.count, 0, steps.mean_loss(n), n};
  std::vector<double> variances;
  for (auto step = std::prev(of_steps.end(), static_cast<std::ptrdiff_t>(n)); step != of_steps.end(); ++step) {
    const Targets& targets = step->second;
    guess.loss += (targets.squares - 2 * guess.mean * targets.sum) / targets.count + guess.mean * guess.mean;
    const double mean = targets.sum / targets.count;
    variances.push_back(targets.squares / targets.count - mean * mean);
  }
  guess.median_loss = median(steps.last_losses);
  guess.median_variance = median(std::move(variances));
  guess.loss /= static_cast<double>(n);
  return guess;
}

std::optional<Guessing> guessing_of(const AnalysisContext& context) {
  const auto loss = mean_loss_op(context, {OpFunction::cross_entropy, OpFunction::nll});
  if (!loss) return std::nullopt;
  Guessing guessing{classes_of(context, *loss), {}};
  if (!(guessing.classes >= 2)) return std::nullopt;
  if (!is_multiplied(context, *loss)) guessing.loss = std::log(guessing.classes);
  guessing.least = entropy_of_smoothed(guessing.classes, attribute(context.trace.ops()[*loss], "label_smoothing").value_or(0));
  return guessing;
}

}  // namespace ulpscope
