// Which power-of-two loss scales fit the rows of a tensor, as k with bounds: a bin of the histogram that straddles a threshold, and
// squares of what lies in a bin, are known between two ends. Definitions: docs/numerics.md, "What-ifs and fitting scales".
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

inline double square(double x) { return x * x; }

// Exponents k, lower <= k <= upper. kNoLower, kNoUpper: not bounded on that side.
struct ExponentBounds {
  static constexpr int kNoLower = std::numeric_limits<int>::min();
  static constexpr int kNoUpper = std::numeric_limits<int>::max();
  int lower = kNoLower;
  int upper = kNoUpper;
  bool operator==(const ExponentBounds&) const = default;
};

// The greater of both bounds, and the less.
void raise(std::optional<ExponentBounds>& into, const ExponentBounds& other);
void narrow_from_above(std::optional<ExponentBounds>& into, const ExponentBounds& other);

// The scale 2^k as a cell; Unknown without bounds on both sides.
Cell scale_cell(const std::optional<ExponentBounds>& bounds);

// The largest k at which rounding x * 2^k / S to `format` overflows nowhere in the row. nullopt: nothing can overflow, or nothing
// is known. Where the row holds NaN or Inf the values behind them are not known, only that S itself is too large.
std::optional<ExponentBounds> largest_fitting(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format);

// Which magnitudes a rounding flushes, and the part of a norm without which that is felt.
struct Flushing {
  MagnitudeThreshold flushed{};
  double felt = 0;
};
Flushing flushing_of(const FloatFormat& format, const Rounding& rounding = {});

// What a count that never falls gains from one exponent to the next; exponents beyond kFirst and kLast count there.
class ExponentCounts {
 public:
  static constexpr int kFirst = -320, kLast = 320;

  void add(int exponent, uint64_t n) {
    if (n == 0) return;
    if (gains_.empty()) gains_.resize(kLast - kFirst + 1);
    const int used = std::clamp(exponent, kFirst, kLast);
    gains_[used - kFirst] += n;
    first_used_ = std::min(first_used_, used);
    last_used_ = std::max(last_used_, used);
  }
  void add(const ExponentCounts& other);
  void clear();
  // The highest exponent up to which the count, beginning with `start`, is not too much; kLast where it never is, nullopt where
  // it is from the start.
  template <typename IsTooMuch>
  std::optional<int> highest(uint64_t start, IsTooMuch&& is_too_much) const {
    uint64_t count = start;
    if (is_too_much(count)) return std::nullopt;
    for (int exponent = first_used_; exponent <= last_used_; ++exponent) {
      count += gains_[exponent - kFirst];
      if (is_too_much(count)) return exponent - 1;
    }
    return kLast;
  }

 private:
  std::vector<uint64_t> gains_;                  // empty: all are 0
  int first_used_ = kLast, last_used_ = kFirst;  // all others are 0
};

// What rounding x * 2^k / S flushes, for every k at once: how many elements, and in how many rows the norm feels it. Adds over
// rows. Where the mode's direction depends on signs or random bits: at least and at most.
class FlushCounts {
 public:
  explicit FlushCounts(const Flushing& flushing) : flushing_(flushing) {}
  // Without rows, for this rounding.
  void restart(const Flushing& flushing);
  // False: the row tells nothing (no histogram, or NaN and Inf in it).
  bool add(const TensorRow& row, const TensorInfo& tensor);
  void add(const FlushCounts& other);  // of the same rounding
  const Flushing& flushing() const { return flushing_; }
  // The least k at which the share flushed is at most `limit`, or the flush does not matter (FlushLoss); nullopt where there is no
  // nonzero element, or none is ever flushed.
  std::optional<ExponentBounds> smallest_fitting(double limit) const;

 private:
  struct Lost;
  class Sweep;
  // What lies up to p 2^j, at least and at most.
  void add_up_to(double p, const TensorRow& row, const Lost& lost, bool surely, bool maybe);

  Flushing flushing_;
  // By exponent j, the elements with |x| / S <= m 2^j and the rows that feel their loss, at least (sure) and at most (maybe). m is
  // the significand, from 1 up to 2, of the threshold below which all are flushed (sure), or some (maybe).
  ExponentCounts sure_, maybe_, felt_surely_, felt_maybe_;
  uint64_t base_ = 0, rows_ = 0;  // rows_: with an element that was not zero
  uint64_t lost_ = 0;             // elements flushed before the statistics were taken: where they lie is not known
  bool uncounted_ = false;        // the same, and not even how many
};

}  // namespace ulpscope
