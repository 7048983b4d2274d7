// What findings on gradients that overflowed share.
#pragma once

#include <span>

#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

class RunFacts;

namespace findings {

Suspects overflowed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors);
// A phrase on steps that were taken with infinite gradients: "3 gradient tensors overflowed in 2 steps that were not skipped".
Sentence overflow_kept_title(const RunFacts& facts);
Extent kept_extent(const RunFacts& facts, const Suspects& kept);
// `worst`: the tensor that overflowed most.
Advice overflow_kept_advice(const RunFacts& facts, uint32_t worst);

}  // namespace findings
}  // namespace ulpscope
