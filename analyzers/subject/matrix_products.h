// The matrix products that a run computes, convolutions among them, by the shapes in the tables of ops, tensors and the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/emulation/product_shape.h"

namespace ulpscope {

struct AnalysisContext;

struct MatrixProduct {
  uint32_t tensor = 0;  // output 0 of its op, in whose type it is computed
  ProductShape shape;
};

// The products of the forward pass and the loss that are asked for, one for each op.
std::vector<MatrixProduct> forward_products(const AnalysisContext& context);
// Multiply-adds of one call, twice counted. Attention is two products: of queries with keys, which its shape is of, and of what
// comes of that with values.
double flop_of(const AnalysisContext& context, const MatrixProduct& product);

}  // namespace ulpscope
