// Every op of docs/ops.md in plain loops, one thread, no SIMD: what each op means, in the simplest form. The fast kernels are
// tested against it, bit by bit where they are ours; FP64 calls are computed by it, and captures follow from it.
#pragma once

#include <string_view>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

std::vector<std::string_view> plain_ops();
// Computes the call and fills in its records, except samples. An internal error where the op is not known.
void run_plain(const OpCall& call);
// What element `element` (logical index) of output `slot`, a floating-point tensor, was made of; after the call, computed by any
// backend whose memory the host reads. Its cost is that of the element's row or terms, not of the call.
ElementCapture capture_element(const OpCall& call, int slot, int64_t element);
// Of the first element that is not finite; element -1 where all are.
ElementCapture capture_nonfinite(const OpCall& call, int slot);

}  // namespace ulpscope
