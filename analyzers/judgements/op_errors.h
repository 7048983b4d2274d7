// The errors that ops made by themselves, in steps in which they were computed again from the same inputs in a wider type
// (docs/numerics.md, "Errors of ops").
#pragma once

#include <cstdint>
#include <vector>

namespace ulpscope {

class RunFacts;

// The errors of one output. Errors are Euclidean norms over that of the wide result; medians are over its rows.
struct OpError {
  // From so much on an error is told: 10% of the norm, and more than twice what rounding the result costs, so that most of its
  // square is not that rounding.
  static constexpr double kFelt = 0.1, kFloors = 2;

  uint32_t tensor = 0;
  uint64_t rows = 0, steps = 0;
  uint64_t first_step = 0;  // that has a row
  double injected = 0;      // the median of what the op's arithmetic and storage made
  double floor = 0;         // the same of what one rounding to the type costs
  double over_floor = 0;    // the median of the ratio; Inf where that rounding costs nothing
  double largest = 0;       // injected, of any row
  uint64_t largest_step = 0;

  bool is_felt() const { return injected >= kFelt && over_floor > kFloors; }
};

// In the steps that are asked for, the largest error first; NaN and Inf have no part in them. Throws Error (unreadable).
std::vector<OpError> op_errors_of(const RunFacts& facts);

}  // namespace ulpscope
