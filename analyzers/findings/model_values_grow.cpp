#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/growth.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/step_facts.h"

namespace ulpscope::findings {

namespace {

// So many products in a row, each of which doubled the largest magnitude on average, and together made it 256 times as large:
// without them the run's first NaN or infinity would have been 8 binades away.
constexpr size_t kLeastProducts = 4;
constexpr double kLeastPerProduct = 2, kLeastFactor = 256;

// One of the products alone is a matter of its own weights.
bool is_of_all(const Growth& growth) {
  double most = 1;
  for (size_t i = 1; i < growth.products.size(); ++i)
    most = std::max(most, growth.products[i].largest / growth.products[i - 1].largest);
  return most * most <= growth.factor();
}

bool is_growth(const std::optional<Growth>& growth) {
  return growth && growth->products.size() >= kLeastProducts && growth->per_product() >= kLeastPerProduct &&
         growth->factor() >= kLeastFactor && is_of_all(*growth);
}

void find_growth(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const NonfiniteOrigin* const origin = ranges.main_origin();
  if (origin == nullptr || ranges.harm() == Severity::info) return;
  const std::optional<Growth> growth = growth_towards(facts.context, origin->tensor, origin->position);
  if (!is_growth(growth)) return;
  // What grew only after some steps is a matter of how the weights changed.
  RowPosition first_step = origin->position;
  first_step.step = facts.steps().first.step;
  if (first_step.step != origin->position.step && !is_growth(growth_towards(facts.context, origin->tensor, first_step))) return;
  const Selection& selection = facts.selection;
  const Growth::Product &first = growth->products.front(), &last = growth->products.back();
  const auto key_of = [&](uint32_t tensor) {
    RowKey key = selection.key(tensor);
    key.step = origin->position.step;
    return key;
  };
  const bool is_gradient = is_computed_gradient(selection.tensor(last.tensor).role);
  Extent extent{{}, origin->position.step, first.tensor};
  for (const Growth::Product& product : growth->products) extent.tensors.push_back(product.tensor);
  extent.tensors.push_back(origin->tensor);
  found.add(
      ranges.harm(),
      fmt::format("{} grew with each of {} products on the way to {} in step {}, {:.3g} times on average: the largest from "
                  "{:.4g} to {:.4g}.",
                  is_gradient ? "Gradients" : "Values", growth->products.size(), selection.name(origin->tensor),
                  origin->position.step, growth->per_product(), first.largest, last.largest),
      {{key_of(last.tensor), {{"largest", last.largest}}}, {key_of(first.tensor), {{"largest", first.largest}}}},
      fmt::format("Each further {} would multiply them once more, in any format: smaller weights to begin with, or a norm between "
                  "these products, keep them where they are.",
                  is_gradient ? "layer or time step on the way back" : "layer or time step"),
      std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_values_grow{
    .code = "model.values_grow",
    .part = Part::ranges,
    .raised =
        "On the way to the run's first NaN or infinity four products or more each gave a larger result than the one before, "
        "twice as large on average, and together 256 times, no one of them by more than all others; and so they did in the run's "
        "first "
        "step.",
    .meaning = "Layer by layer, or time step by time step, values or gradients are multiplied by weights that are too large.",
    .help = "Smaller initial weights, or a norm between the layers. A wider format only moves the end further away.",
    .explains = kOfNonfinite + Codes{"scale.no_scale_fits", "scale.over_scaled"},
    .shown_by = "experiments/failures/exploding_gru.toml --resume experiments/failures/exploding_gru.ckpt",
    .find_start = find_growth,
};

}  // namespace ulpscope::findings
