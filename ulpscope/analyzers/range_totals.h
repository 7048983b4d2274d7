// What the rows of one tensor, or of many, add up to: the counts behind `ulpscope ranges`. Adds exactly in any order.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

// The two formats that a what-if is answered for at once; ranges takes one or both.
inline constexpr std::array<const FloatFormat*, 2> kWhatIfFormats{&binary16, &bfloat16};
inline constexpr size_t kWhatIfs = kWhatIfFormats.size();
// The format's place among them.
size_t what_if_index(const FloatFormat& format);

// A what-if over some rows, as scaled or divided by the loss scale.
struct WhatIfTotals {
  RoundingBounds bounds;
  uint64_t rows = 0;     // answered
  uint64_t unknown = 0;  // rows that cannot be answered: no histogram, or stored in a narrow type and not counted
};

// Smallest and largest magnitudes; largest 0: none seen.
struct MagnitudeRange {
  double smallest = 0;
  double largest = 0;

  void add(double least, double most);
};

struct RangeTotals {
  uint64_t rows = 0, elements = 0, nan = 0, infinities = 0, zeros = 0;  // infinities: as stored
  uint64_t rows_with_values = 0;                                        // those with StatisticsLevel::full
  // Roundings into a narrower format.
  RoundingBounds seen;
  uint64_t rescued = 0;
  uint64_t rows_seen = 0, rows_unseen = 0;  // counted by the backend, and not
  uint64_t as_stored = 0;                   // rows whose values were taken after their rounding
  MagnitudeRange recorded, unscaled;        // unscaled: divided by the loss scale
  double least_headroom = kUnknown;         // against the stored format, of the row that has least
  bool scaled = false;                      // some row contained a loss scale other than 1
  std::array<WhatIfTotals, kWhatIfs> as_scaled, as_true;
  // Made when first needed. The true one, divided by the loss scale, exists once a row contained one; rows whose scale is no power
  // of two are missing from it.
  std::unique_ptr<ExponentHistogram> histogram, true_histogram;

  void add(const TensorRow& row, const TensorInfo& tensor);
  void add(const RangeTotals& other);
  uint64_t nonfinite() const { return nan + infinities; }
};

}  // namespace ulpscope
