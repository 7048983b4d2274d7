// Where a wider type mends a value that is too large for a narrow one: not in the module alone that made it, where the next one
// casts it to the narrow type again.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

class RunFacts;

// The modules in which the value, and what is computed from it, is in a narrow type, to where an op bounds it: a norm, a softmax or
// the loss, by the recorded edges. As autocast takes them: "norm", "stack.*"; "": they are no group, or nothing in the run casts by
// module.
std::string modules_to_widen(const RunFacts& facts, uint32_t tensor);
// "Keep `stack.*` in FP32 (autocast.modules."stack.*" = "fp32"), or train in BF16 (precision, now "fp16").", of a value that
// overflowed in a type of less range than FP32.
Advice widen(const RunFacts& facts, uint32_t tensor);
// A phrase on the module that made a value which underflowed: "Keep `norm` in FP32 (...)", or ", or keep `norm` in FP32 (...)". The
// change is noted in `advice`.
enum class Clause : uint8_t { first, other };
Sentence keep_in_fp32(const RunFacts& facts, uint32_t tensor, Clause clause, Advice& advice);

}  // namespace ulpscope
