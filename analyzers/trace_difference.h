// Two recordings of the same steps, row by row and bit by bit: where they first part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

struct TraceDifference {
  uint64_t steps = 0, rows = 0;  // that both have and that were compared, up to the difference
  struct First {
    RowKey key;        // of a tensor, or of a step only
    std::string name;  // "fc matmul (weight)", or "" of a step
    std::string what;  // "largest", or "" where only one of the two has the row
    std::string first, second;
  };
  std::optional<First> difference;  // in order of execution
};

// Of the steps of `second`, all of which `first` should have. Where `second` resumed, what it began with has no rows in `first`.
// What one of them recorded in less detail is compared as far as both know it. What time and memory it took is not compared.
TraceDifference find_difference(const Snapshot& first, const Snapshot& second);

}  // namespace ulpscope
