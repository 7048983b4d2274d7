// Matrix products and convolutions whose sums are kept as the call's arithmetic says (op_call_arithmetic.h), with the same bits
// on any number of threads and any instruction set. The terms of an element stand in the order of product_factors.h.
// A bias is added in what the sum is known in (FP32, FP64, or exactly), before the output is rounded; of scaled products in FP32.
#pragma once

#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/product_arithmetic.h"

namespace ulpscope::cpu {

// Whether sums are FP64 numbers: those of FP64 and the exact ones, which are rounded to odd there, so that rounding them to an
// output's type is one rounding of the exact sum.
bool sums_in_double(const AccumulatedProduct& product);
void multiply_accumulated(Context& context, const OpCall& call, const AccumulatedProduct& product);

}  // namespace ulpscope::cpu
