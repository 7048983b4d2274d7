// How magnitudes grew along the graph on the way to a tensor: from layer to layer of a network, or from time step to time step.
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

// The results of products (matrix products and convolutions) that lie on one way through the graph in one step, in order of
// execution, each larger than the one before.
struct Growth {
  struct Product {
    uint32_t tensor = 0;
    double largest = 0;  // finite magnitude, as recorded
  };
  std::vector<Product> products;

  double factor() const { return products.back().largest / products.front().largest; }  // from the first to the last
  double per_product() const;                                                           // its geometric mean
};

// Of the way that leads to `tensor` at `position` from each op to that of its inputs which held the largest magnitude in the same
// pass, weights left out. It ends before what was nonfinite, and before ops whose inputs' magnitudes were not recorded. Nothing
// where fewer than two products lie on it whose results grew.
std::optional<Growth> growth_towards(const AnalysisContext& context, uint32_t tensor, const RowPosition& position);

}  // namespace ulpscope
