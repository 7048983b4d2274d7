// The formulas of formulas.h over arrays, chosen at run time by the CPU's instruction set.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope::cpu {

// out[i] = formula(inputs[0][i], ...) for n elements. `out` may be one of the inputs.
using FormulaKernel = void (*)(const Attributes& attributes, const float* const* inputs, float* out, int64_t n);
// Of the formula with this place in the list of formulas.h.
FormulaKernel formula_kernel(int index);
// The same of the list of losses' terms.
FormulaKernel loss_term_kernel(int index);

}  // namespace ulpscope::cpu
