// Every op of docs/ops.md in plain loops, one thread, no SIMD: what each op means, in the simplest form. The fast kernels are
// tested against it, bit by bit where they are ours; FP64 calls are computed by it.
#pragma once

#include <string_view>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

bool plain_supports(std::string_view op);
// Computes the call and fills in its records, except samples. An internal error where the op is not known.
void run_plain(const OpCall& call);

}  // namespace ulpscope
