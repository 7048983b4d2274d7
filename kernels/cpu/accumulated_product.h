// Matrix products and convolutions whose sums are kept as the call's arithmetic says (op_call_arithmetic.h), with the same bits
// on any number of threads and any instruction set. Convolutions are products of gathered rows; the terms of an element stand
//   in the order (kernel row, kernel column, channel) for a convolution, a transposed one and the gradient of the input, terms that
//     fall into the padding or between strides being products with zero,
//   in the order (image, row, column) of the map for the gradient of the weight.
// A bias is added in what the sum is known in (FP32, FP64, or exactly), before the output is rounded; of scaled products in FP32.
#pragma once

#include <array>
#include <optional>

#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/cpu/context.h"

namespace ulpscope::cpu {

struct AccumulatedProduct {
  Accumulator accumulator;
  std::array<DType, 2> factors;    // that they have, or are widened to; of one size
  bool is_scaled;                  // as scaled_matmul is (docs/ops.md): sums become FP32 numbers and are scaled
  std::optional<TensorCore> core;  // of Accumulator::tensor_core
};

// Nothing: the call's own kernel computes it. It is no product, has no terms, or is one that the GPU has no tensor cores for.
std::optional<AccumulatedProduct> accumulated_product(const OpCall& call);
// Whether sums are FP64 numbers: those of FP64 and the exact ones, which are rounded to odd there, so that rounding them to an
// output's type is one rounding of the exact sum.
bool sums_in_double(const AccumulatedProduct& product);
void multiply_accumulated(Context& context, const OpCall& call, const AccumulatedProduct& product);

}  // namespace ulpscope::cpu
