// What the sums of a product call are kept in, where that is not what its own kernel keeps them in.
#pragma once

#include <array>
#include <optional>

#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

struct AccumulatedProduct {
  Accumulator accumulator;
  std::array<DType, 2> factors;         // that they have, or are widened to; of one size
  bool is_scaled;                       // as scaled_matmul is (docs/ops.md): sums become FP32 numbers and are scaled
  std::optional<TensorCore> core;       // of Accumulator::tensor_core
  const FloatFormat* narrow = nullptr;  // of Accumulator::narrow
};

// The types that factors are multiplied in: those of different types become FP32, but those in FP8.
std::array<DType, 2> factor_types(const OpCall& call);

// Nothing: the call's own kernel computes it. It is no product, has no terms, or is one that the GPU has no tensor cores for.
std::optional<AccumulatedProduct> accumulated_product(const OpCall& call);

}  // namespace ulpscope
