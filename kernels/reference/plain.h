// Every op of docs/ops.md in plain loops, one thread, no SIMD: what each op means, in the simplest form. The fast kernels are
// tested against it, bit by bit where they are ours; FP64 calls are computed by it.
#pragma once

#include <string_view>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

std::vector<std::string_view> plain_ops();
// Computes the call and fills in its records, except samples. An internal error where the op is not known.
void run_plain(const OpCall& call);
// The first element of output `slot` that is not finite, with its operands; after the call, computed by any backend.
ElementCapture capture_nonfinite(const OpCall& call, int slot);

}  // namespace ulpscope
