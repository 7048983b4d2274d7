// What a row op gets of one row (rows.h).
#pragma once

#include <array>
#include <cstdint>

namespace ulpscope {

// How an operand of a row op lies: a value for each element; one for each place in a row, the same for all rows; one for each row.
enum class RowOperand : uint8_t { row, vector, scalar };

inline constexpr int kMaxRowInputs = 5, kMaxRowOutputs = 3;

template <class C>
struct RowCall {
  int64_t n = 0;  // values in a row
  std::array<const C*, kMaxRowInputs> inputs{};
  std::array<C*, kMaxRowOutputs> outputs{};
};

}  // namespace ulpscope
