// What a row op gets of one row (rows.h).
#pragma once

#include <array>
#include <cstdint>

namespace ulpscope {

// How an operand of a row op lies: a value for each element of a row, or several parts of so many values one after the other; one
// for each place in a row, the same for all rows; one for each row.
class RowOperand {
 public:
  static const RowOperand row, vector, scalar;
  static constexpr RowOperand rows(int parts) { return {Kind::row, parts}; }

  constexpr bool is_row() const { return kind_ == Kind::row; }
  constexpr int parts() const { return parts_; }
  // From one row's values to the next one's, where a row has n.
  constexpr int64_t stride(int64_t n) const { return kind_ == Kind::row ? parts_ * n : kind_ == Kind::scalar; }
  constexpr bool operator==(const RowOperand&) const = default;

 private:
  enum class Kind : uint8_t { row, vector, scalar };
  constexpr RowOperand(Kind kind, int parts) : kind_(kind), parts_(parts) {}

  Kind kind_;
  int parts_;
};
inline constexpr RowOperand RowOperand::row{Kind::row, 1}, RowOperand::vector{Kind::vector, 1}, RowOperand::scalar{Kind::scalar, 1};

inline constexpr int kMaxRowInputs = 5, kMaxRowOutputs = 3;

template <class C>
struct RowCall {
  int64_t n = 0;  // values in a row
  std::array<const C*, kMaxRowInputs> inputs{};
  std::array<C*, kMaxRowOutputs> outputs{};
};

}  // namespace ulpscope
