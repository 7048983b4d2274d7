// What findings on values and gradients that overflowed share.
#pragma once

#include <span>

#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

class RunFacts;

namespace findings {

Suspects overflowed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors);
Extent kept_extent(const RunFacts& facts, const Suspects& kept);
// `worst`: the tensor that overflowed most.
Advice overflow_kept_advice(const RunFacts& facts, uint32_t worst);

// What keeps a gradient, or a loss that was scaled, in the range of its type: a lower loss scale or factor of the loss, or BF16.
Advice lower_scale_advice(const RunFacts& facts, DType dtype);
// A phrase on tensors beside the one that is named: " and 2 other tensors"; or nothing.
Sentence and_others(size_t all);

// A phrase, ", below 2^18": which scales fit, where the run began with a larger one; or nothing. "Below" of a bound: what was
// computed from infinities may need less.
Sentence below_fitting(const RunFacts& facts);

}  // namespace findings
}  // namespace ulpscope
