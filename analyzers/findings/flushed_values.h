// Values other than gradients of which a rounding flushed much to zero, and of how many tensors that was asked.
#pragma once

#include "ulpscope/analyzers/judgements/suspects.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// `felt`: those that the loss is computed from, and that lost most, so that their norm felt it; or the others.
Suspects flushed_values(const RunFacts& facts, bool felt);

// How many were rounded to FP16 or BF16, where the backend counted what was lost: gradients, other tensors, and of these those that
// the loss is computed from.
size_t rounded_gradients(const RunFacts& facts);
size_t rounded_values(const RunFacts& facts);
size_t rounded_forward_values(const RunFacts& facts);

}  // namespace findings
}  // namespace ulpscope
