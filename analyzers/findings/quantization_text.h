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
// How many tensors there are in FP8.
size_t quantized_tensors(const RunFacts& facts);
// The share of its nonzero elements that the tensor lost to zero, but before it had a history.
Value flushed_of(const RunFacts& facts, uint32_t tensor);
// "Use current scaling (fp8.recipe = "current", now "delayed").", or as another way.
Advice use_current_scaling(const SettingNames& settings, bool is_other_way);

}  // namespace findings
}  // namespace ulpscope
