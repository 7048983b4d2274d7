// What the rows of one tensor, or of many, add up to: the counts behind `ulpscope ranges`. Adds exactly in any order.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

// A what-if over some rows, as scaled or divided by the loss scale.
struct WhatIfTotals {
  RoundingBounds bounds;
  uint64_t rows = 0;     // answered
  uint64_t unknown = 0;  // rows that cannot be answered: no histogram, or stored in a narrow type and not counted

  void add(const std::optional<RoundingBounds>& row);
  WhatIfTotals& operator+=(const WhatIfTotals& other);
};

// The what-ifs of one format.
struct FormatTotals {
  WhatIfTotals as_scaled, as_true;
};

// Smallest and largest magnitudes; largest 0: none seen.
struct MagnitudeRange {
  double smallest = 0;
  double largest = 0;

  void add(double least, double most);
};

// Of quantized_histograms.
constexpr size_t fp8_place(DType dtype) { return dtype == DType::f8_e4m3 ? 0 : 1; }

struct RangeTotals {
  uint64_t rows = 0, elements = 0, nan = 0, infinities = 0, zeros = 0;  // infinities: as stored
  uint64_t rows_with_values = 0;                                        // those with StatisticsLevel::values
  // Roundings into a narrower format.
  RoundingBounds seen;
  uint64_t rescued = 0;
  uint64_t saturated = 0;                   // of those that overflowed: kept at the largest number by a directed mode
  uint64_t rows_seen = 0, rows_unseen = 0;  // counted by the backend, and not
  uint64_t as_stored = 0;                   // rows whose values were taken after their rounding
  MagnitudeRange recorded, unscaled;        // without the quantization scale; unscaled: divided by the loss scale as well
  double least_headroom = kUnknown;         // against the stored format, of the row that has least
  bool scaled = false;                      // some row contained a loss scale other than 1
  bool quantized = false;                   // some row is of a tensor in FP8
  std::vector<FormatTotals> what_if;        // for each of the formats that tables have
  // Histograms of values without their quantization scale, made when first needed, and for tables; the first also of what a
  // rounding made that nobody counted. The true one, divided by the loss scale, exists once a row contained one. Rows whose scale
  // is no power of two are missing, in the first where the quantization scale is none.
  std::unique_ptr<ExponentHistogram> histogram, true_histogram;
  // Of rows in E4M3 and of those in E5M2: of the values times their quantization scale, which is what was rounded.
  std::array<std::unique_ptr<ExponentHistogram>, 2> quantized_histograms;
  // Of rows in FP8: their quantization scales, and the largest magnitudes of rows without them (amax).
  MagnitudeRange quantization_scales, amax;

  // `tabled`: the formats to answer what-ifs for, the same at every call; nothing: no tables are made.
  void add(const TensorRow& row, const TensorInfo& tensor, std::optional<std::span<const FloatFormat* const>> tabled = {});
  void add(const RangeTotals& other);
  void append(const RangeTotals& later) { add(later); }
  void beside(const RangeTotals& other) { add(other); }
  uint64_t nonfinite() const { return nan + infinities; }

 private:
  // Rows whose magnitudes are no larger have no less headroom.
  double largest_since_ = 0;
  DType of_dtype_ = DType::f32;  // since a row of another type came
};

// The share of the elements that the recorded roundings took there (flushed, subnormal, overflowed): Unknown where no backend
// counted, NotApplicable where nothing was rounded into a narrower format.
Cell seen_cell(const RangeTotals& totals, CountBounds RoundingBounds::*what);

}  // namespace ulpscope
