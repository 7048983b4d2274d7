// The values of cells of tables, facts and sentences, and their units.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace ulpscope {

// The unit of a number: it counts or measures this.
enum class Unit : uint8_t {
  none,
  count,
  share,     // 0 to 1
  bits,      // powers of two, as in headroom
  exponent,  // e of a magnitude 2^e
  bytes,
  seconds,
  ratio,         // one run's value over another's
  scale,         // a loss scale; of bounds, a lower one of 0 is none
  power_of_two,  // of a number that is one, shown as 2^e
};
const char* name_of(Unit unit);

// A value that is only known to lie between two bounds, both possible. An upper bound of +Inf is no bound.
struct Interval {
  double lower = 0;
  double upper = 0;
  bool operator==(const Interval&) const = default;
};

struct Unknown {  // nobody saw it
  bool operator==(const Unknown&) const = default;
};
struct NotApplicable {  // the question makes no sense here: what an FP32 tensor lost when it was rounded
  bool operator==(const NotApplicable&) const = default;
};
// A text that programs get whole, and readers of a table in a form that fits there and says where something was left out.
struct LongText {
  std::string text;
  std::string brief;
  bool operator==(const LongText&) const = default;
};
using Cell = std::variant<Unknown, NotApplicable, bool, int64_t, double, Interval, std::string, LongText>;

// The cell of a count, a share or any number between two bounds: the number where they meet.
Cell bounded(double lower, double upper);
Cell count_cell(uint64_t count);
// Unknown for a NaN that stands for "not known" (trace/records.h, kUnknown).
Cell known_or_unknown(double value);
Cell text_or_none(std::string text);  // NotApplicable where it is empty

}  // namespace ulpscope
