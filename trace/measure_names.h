// The names of measures that readers know, as they stand in the table `measures`.
#pragma once

#include <string_view>

namespace ulpscope {

// Both are measured at an output in 16 bits whose op was computed again, from the same inputs in a wider type, and are Euclidean
// norms over that of the wide result: of the stored values less the wide ones, and of the wide ones rounded once to the output's
// type less themselves.
inline constexpr std::string_view kInjectedError = "injected_error", kRoundingFloor = "rounding_floor";

}  // namespace ulpscope
