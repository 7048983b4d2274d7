// The names of measures that readers know, as they stand in the table `measures`.
#pragma once

#include <string_view>

namespace ulpscope {

// Of an output in 16 bits whose op was computed again, from the same inputs in a wider type: Euclidean norms over that of the wide
// result. What was stored, less the wide result; and the wide result, rounded once to the output's type, less the wide result.
inline constexpr std::string_view kInjectedError = "injected_error", kRoundingFloor = "rounding_floor";

}  // namespace ulpscope
