// Calls of every op as data.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/kernels/cases/op_case.h"

namespace ulpscope::cases {

// All ops of the backend, in small shapes with odd extents, paddings, strides and layouts.
std::vector<Case> elementwise_cases(const std::vector<int64_t>& shape);
std::vector<Case> other_cases();
// Those no input of which has more than `largest` elements.
std::vector<Case> small_cases(const std::vector<Case>& all, int64_t largest);

}  // namespace ulpscope::cases
