#include <fmt/format.h>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/growth.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_facts.h"

namespace ulpscope::findings {

namespace {

// So many products in a row, each of which doubled the largest magnitude on average, and together made it 256 times as large:
// without them the run's first NaN or infinity would have been 8 binades away.
constexpr size_t kLeastProducts = 4;
constexpr double kLeastPerProduct = 2, kLeastFactor = 256;

void find_growth(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const auto& origin = ranges.origin();
  if (!origin || ranges.harm() == Severity::info) return;
  const std::optional<Growth> growth = growth_towards(facts.context, origin->tensor, origin->position);
  if (!growth || growth->products.size() < kLeastProducts || growth->per_product() < kLeastPerProduct ||
      growth->factor() < kLeastFactor)
    return;
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
      fmt::format("The weights of these products are too large, and each further {} multiplies once more, in any format: make "
                  "them smaller to begin with, or put a norm between them.",
                  is_gradient ? "layer or time step on the way back" : "layer or time step"),
      std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_values_grow{
    .code = "model.values_grow",
    .part = Part::ranges,
    .raised =
        "On the way to the run's first NaN or infinity four products or more each gave a larger result than the one before, "
        "twice as large on average, and together 256 times.",
    .meaning = "Layer by layer, or time step by time step, values or gradients are multiplied by weights that are too large.",
    .help = "Smaller initial weights, or a norm between the layers. A wider format only moves the end further away.",
    .explains = kOfNonfinite + Codes{"scale.no_scale_fits", "scale.over_scaled"},
    .shown_by = "experiments/failures/exploding_gru.toml --resume experiments/failures/exploding_gru.ckpt",
    .find_start = find_growth,
};

}  // namespace ulpscope::findings
