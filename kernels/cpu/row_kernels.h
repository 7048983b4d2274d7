// The row ops of rows.h over arrays, chosen at run time by the CPU's instruction set.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/row_call.h"

namespace ulpscope::cpu {

using RowKernel = void (*)(const Attributes& attributes, const RowCall<float>& row);
// Of the row op with this place in the list of rows.h.
RowKernel row_kernel(int index);

// One row's terms of the gradient of a normalization's weight: terms = g ((x - mean) inverse).
void weight_terms(const float* g, const float* x, float mean, float inverse, int64_t n, float* terms);

// log_of_softmax_sum of rows.h.
float log_of_softmax_sum(const float* x, int64_t n);
// out = e^(x - origin)
void exponentials(const float* x, float origin, int64_t n, float* out);

}  // namespace ulpscope::cpu
