// Probabilities where a loss takes logits: from the table of the graph; no rows.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/training_loss.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kReadsProbabilities{
    "model.probabilities_as_logits",
    "`{loss}` takes probabilities for logits: it reads what {place} gives, which is between 0 and 1."};
constexpr Template kLeastOfClasses{
    "model.probabilities_as_logits.classes",
    "Of {classes} classes the loss of a sample cannot fall below log(1 + {others} / e) = {least:.4g}."};
constexpr Template kLeastOfZero{"model.probabilities_as_logits.zero",
                                "The loss of a target of 0 cannot fall below log(2) = {least:.4g}."};
constexpr Template kHandLogits{"advice.hand_logits", "Leave out that `{activation}`: `{loss}` takes logits."};

// A log_softmax is a part of such a loss where an nll reads it, and may serve another purpose elsewhere.
bool takes_logits(const AnalysisContext& context, uint32_t number) {
  const std::vector<OpInfo>& ops = context.trace.ops();
  const OpInfo& op = ops[number];
  if (op.phase != Phase::loss && op.phase != Phase::forward) return false;
  const std::span<const GraphEdge> uses = context.trace.graph().uses(number);
  const bool is_of_nll = op.function == OpFunction::log_softmax && std::any_of(uses.begin(), uses.end(), [&](const GraphEdge& use) {
                           return ops[use.consumer].function == OpFunction::nll;
                         });
  const bool takes = is_of_nll || op.function == OpFunction::cross_entropy || op.function == OpFunction::bce_with_logits;
  return takes && backward_op_of(context, number).has_value();
}

bool has_class_weights(const AnalysisContext& context) {
  constexpr uint32_t kWeights = 2;
  const std::vector<OpInfo>& ops = context.trace.ops();
  for (uint32_t i = 0; i < ops.size(); ++i)
    if (ops[i].function == OpFunction::nll && context.graph.read_by(i, kWeights) != nullptr) return true;
  return false;
}

void find_probabilities(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  const std::vector<OpInfo>& ops = context.trace.ops();
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (!takes_logits(context, i)) continue;
    const std::span<const uint32_t> read = sources_read_as(context, i, Meaning::value);
    if (read.empty()) continue;
    const uint32_t logits = read.front();
    const OpInfo& activation = context.selection.op(logits);
    const TensorInfo& values = context.selection.tensor(logits);
    const bool is_binary = ops[i].function == OpFunction::bce_with_logits;
    if (activation.function != OpFunction::softmax && activation.function != OpFunction::sigmoid) continue;
    // The number of classes along another dimension, as of pixels, is not known; nor is what weights of classes do to the loss.
    const std::span<const uint32_t> made = context.graph.made_by(i, 0);
    const bool is_apart = ops[i].function == OpFunction::log_softmax && !made.empty();
    const std::vector<int64_t>& shape = is_apart ? context.selection.tensor(made.front()).shape : values.shape;
    const double classes = shape.size() == 2 && !is_binary ? static_cast<double>(shape[1]) : 0;
    const bool is_bounded = is_binary || (classes >= 2 && !has_class_weights(context));
    const Name loss{NameKind::op, ops[i].name};
    const double least = is_binary ? std::log(2.0) : std::log1p((classes - 1) / std::exp(1.0));
    Sentences title = kReadsProbabilities({{"loss", loss}, {"place", tensor_place(facts.selection, logits)}});
    if (is_binary)
      title += kLeastOfZero({{"least", least}});
    else if (is_bounded)
      title += kLeastOfClasses(
          {{"classes", static_cast<uint64_t>(classes)}, {"others", static_cast<uint64_t>(classes) - 1}, {"least", least}});
    std::vector<Quantity> evidence;
    if (is_bounded) evidence.push_back({"least_loss", least});
    found.add(Severity::warning, std::move(title), {{facts.selection.key(logits), std::move(evidence)}},
              Advice(kHandLogits({{"loss", loss}, {"activation", Name{NameKind::op, activation.name}}})), {{logits}});
    return;
  }
}

}  // namespace

extern constinit const FindingRule model_probabilities_as_logits{
    .code = "model.probabilities_as_logits",
    .part = Part::run,
    .raised =
        "A cross entropy, a log_softmax before nll, or a binary cross entropy of logits reads what a softmax or a sigmoid gave.",
    .meaning =
        "The loss takes a softmax of probabilities, which are nearly alike: it cannot fall far, its gradients are small, and the "
        "model learns slowly or not at all.",
    .help = "Hand the loss the logits, without the last activation.",
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "updates.none_applied", "range.gradients_vanish"},
    .find = find_probabilities,
};

}  // namespace ulpscope::findings
