// Which output of an op of some function is what (docs/trace_format.md, Outputs).
#pragma once

#include <cstdint>

namespace ulpscope {

inline constexpr uint8_t kSecondMomentSlot = 2;     // adam_update
inline constexpr uint8_t kSumsOfExponentsSlot = 1;  // cross_entropy: their logarithms, of each row of logits

}  // namespace ulpscope
