// What findings on tensors in FP8 share.
#pragma once

#include <span>

#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

class RunFacts;
class SettingNames;

namespace findings {

// Tensors of which a rounding to FP8 flushed much, the worst first. `at_own_scale`: with what would have been lost at the scale
// that follows from the tensor itself.
Suspects flushed_in_fp8(const RunFacts& facts, std::span<const uint32_t> tensors, bool at_own_scale = false);
// A phrase: "3 tensors lost more than 1% of the nonzero elements".
Sentence lost_much(const RunFacts& facts, const Suspects& suspects);
// A phrase that begins a sentence.
Advice current_scaling(const SettingNames& settings);

}  // namespace findings
}  // namespace ulpscope
