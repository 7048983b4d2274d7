#include <algorithm>
#include <optional>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/growth.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGrownGradients{"model.values_grow.gradients", "Gradients"};
constexpr Template kGrownValues{"model.values_grow.values", "Values"};
constexpr Template kGrownProducts{"model.values_grow.products", "matrix products"};
constexpr Template kGrownSums{"model.values_grow.sums", "sums of branches"};
constexpr Template kValuesGrow{
    "model.values_grow",
    "{grown} grow {factor:.3g}x on average with each of {count} {results}, from {first:.4g} to {last:.4g}, until "
    "{tensor} holds NaN or Inf in step {step}."};
constexpr Template kFurtherLayer{"place.further_layer", "layer or time step"};
constexpr Template kFurtherLayerBack{"place.further_layer_on_way_back", "layer or time step on the way back"};
constexpr Template kSmallerWeights{"advice.smaller_initial_weights",
                                   "Use smaller initial weights, or a norm between these {results}."};
constexpr Template kMultipliedAgain{"advice.multiplied_again", "Each further {layer} multiplies them again, in any format."};

// So many products in a row, or sums of branches, each of which doubled the largest magnitude on average, and together made it 256
// times as large: without them the run's first NaN or infinity would have been 8 binades away.
constexpr size_t kLeastProducts = 4;
constexpr double kLeastPerProduct = 2, kLeastFactor = 256;

// One of the products alone is a matter of its own weights.
bool is_of_all(const Growth& growth) {
  double most = 1;
  for (size_t i = 1; i < growth.results.size(); ++i)
    most = std::max(most, growth.results[i].largest / growth.results[i - 1].largest);
  return most * most <= growth.factor();
}

bool is_growth(const std::optional<Growth>& growth) {
  return growth && growth->results.size() >= kLeastProducts && growth->per_result() >= kLeastPerProduct &&
         growth->factor() >= kLeastFactor && is_of_all(*growth);
}

std::optional<Growth> growth_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  // What grew only after some steps is a matter of how the weights changed.
  RowPosition first_step = origin.position;
  first_step.step = facts.steps().first.step;
  for (const Growth::Of of : {Growth::Of::products, Growth::Of::sums}) {
    std::optional<Growth> growth = growth_towards(facts.context, origin.tensor, origin.position, of);
    if (!is_growth(growth)) continue;
    if (first_step.step == origin.position.step || is_growth(growth_towards(facts.context, origin.tensor, first_step, of)))
      return growth;
  }
  return std::nullopt;
}

void find_growth(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const NonfiniteOrigin* const origin = ranges.main_origin();
  if (origin == nullptr || ranges.harm() == Severity::info) return;
  const std::optional<Growth> growth = growth_of(facts, *origin);
  if (!growth) return;
  const Selection& selection = facts.selection;
  const Growth::Result &first = growth->results.front(), &last = growth->results.back();
  const auto key_of = [&](uint32_t tensor) {
    RowKey key = selection.key(tensor);
    key.step = origin->position.step;
    return key;
  };
  const Sentence results = growth->of == Growth::Of::products ? kGrownProducts() : kGrownSums();
  const bool is_gradient = is_computed_gradient(selection.tensor(last.tensor).role);
  Extent extent{{}, origin->position.step, first.tensor};
  for (const Growth::Result& product : growth->results) extent.tensors.push_back(product.tensor);
  extent.tensors.push_back(origin->tensor);
  found.add(ranges.harm(),
            kValuesGrow({{"grown", is_gradient ? kGrownGradients() : kGrownValues()},
                         {"count", growth->results.size()},
                         {"results", results},
                         {"tensor", tensor_place(selection, origin->tensor)},
                         {"step", ordinal(origin->position.step)},
                         {"factor", growth->per_result()},
                         {"first", first.largest},
                         {"last", last.largest}}),
            {{key_of(last.tensor), {{"largest", last.largest}}}, {key_of(first.tensor), {{"largest", first.largest}}}},
            Sentences{kSmallerWeights({{"results", results}}),
                      kMultipliedAgain({{"layer", is_gradient ? kFurtherLayerBack() : kFurtherLayer()}})},
            std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_values_grow{
    .code = "model.values_grow",
    .part = Part::ranges,
    .raised =
        "On the way to the run's first NaN or Inf four matrix products or sums of branches or more each gave a larger result than "
        "the one before: by 2x on average and 256x together, none by more than all others. So they did in the run's first step.",
    .meaning = "Layer by layer, or time step by time step, values or gradients are multiplied by weights that are too large.",
    .help = "Use smaller initial weights, or a norm between the layers. A wider format only moves the end further away.",
    .explains = kOfNonfinite + Codes{"scale.no_scale_fits", "scale.over_scaled"},
    .shown_by = "experiments/failures/exploding_gru.toml --resume experiments/failures/exploding_gru.ckpt",
    .find_start = find_growth,
};

}  // namespace ulpscope::findings
