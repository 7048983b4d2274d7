// Runs a call whose arithmetic is not the default around a kernel that knows the default only: inputs are flushed before it, its
// outputs are rounded and flushed after it, and products are summed by another kernel.
#pragma once

#include "ulpscope/kernels/cpu/context.h"

namespace ulpscope::cpu {

// `kernel`: of the call's op. Throws a usage Error where the op rounds within, by rules of its own.
void run_with_arithmetic(Context& context, const OpCall& call, const Kernel& kernel);

}  // namespace ulpscope::cpu
