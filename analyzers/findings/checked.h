// What a verdict rests on: it is silent about what nobody could look at, and says so.
#pragma once

#include <span>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

// "NaN and Inf, underflow and overflow, loss scale." and "Not checked: rounding error of sums.": the matters of these parts that
// the trace tells enough of to be judged, and those that it does not.
Sentences what_was_checked(const RunFacts& facts, std::span<const Part> parts);

}  // namespace ulpscope
