// How magnitudes grew or fell along the graph on the way to a tensor: from layer to layer of a network, or from time step to time
// step.
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

// Results that lie on one way through the graph in one step, in order of execution, each larger than the one before; of a fall,
// each smaller.
struct Growth {
  enum class Of : uint8_t {
    products,  // matrix products and convolutions
    sums,      // what a module adds of values that were computed, as of branches; of several of one module the last
  };
  struct Result {
    uint32_t tensor = 0;
    double largest = 0;  // finite magnitude, as recorded
  };
  Of of = Of::products;
  std::vector<Result> results;

  double factor() const { return results.back().largest / results.front().largest; }  // from the first to the last
  double per_result() const;                                                          // its geometric mean
};

// Of the way that leads to `tensor` at `position` from each op to that of its inputs which held the largest magnitude in the same
// pass, weights left out. It ends before what was nonfinite, and before ops whose inputs' magnitudes were not recorded. Nothing
// where fewer than two such results lie on it that grew.
std::optional<Growth> growth_towards(const AnalysisContext& context, uint32_t tensor, const RowPosition& position, Growth::Of of);

// The gradients that products handed on to those before them, on the way back from a loss to `weight`, each smaller than the one
// before; found as above, in the pass of `position`. Nothing where fewer than two products lie on it whose results fell.
std::optional<Growth> fall_of_gradients(const AnalysisContext& context, uint32_t weight, const RowPosition& position);

}  // namespace ulpscope
