// Two recordings of the same steps, row by row and bit by bit: where they first part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

struct TraceDifference {
  uint64_t steps = 0, rows = 0;  // that both have and that were compared, up to the difference
  // Up to there: steps that the first trace lacks, and the first of them.
  uint64_t missing_steps = 0;
  std::optional<uint64_t> first_missing_step;
  // And rows that one trace has and the other did not record: where its size limit stopped it, or its filters leave it out.
  uint64_t unrecorded_rows = 0;
  struct First {
    RowKey key;        // of a tensor, or of a step only
    std::string name;  // "fc matmul (weight)", or "" of a step
    std::string what;  // "largest", or "" where only one of the two has the row, and would have recorded it
    std::string first, second;
  };
  std::optional<First> difference;  // in order of execution
};

// Of the steps of `second`. Where `second` resumed, what it began with has no rows in `first`.
// What one of them recorded in less detail is compared as far as both know it. What time and memory it took is not compared.
TraceDifference find_difference(const Snapshot& first, const Snapshot& second);

}  // namespace ulpscope
