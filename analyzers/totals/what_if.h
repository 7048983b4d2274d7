// What a format, or another loss scale, would have done to a recorded tensor, answered from its exponent histogram. Where a bin
// straddles a threshold, the recorded smallest and largest magnitudes decide if they can; otherwise the answer is an interval.
// A what-if is local: this rounding, with the inputs that were recorded.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/emulation/magnitude_thresholds.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// A number of elements between two bounds.
struct CountBounds {
  uint64_t lower = 0;
  uint64_t upper = 0;

  bool exact() const { return lower == upper; }
  CountBounds& operator+=(const CountBounds& other) {
    lower += other.lower;
    upper += other.upper;
    return *this;
  }
  bool operator==(const CountBounds&) const = default;
};

// A threshold that is itself known exactly (lower == upper) or to within one rounding of its arithmetic.
struct Threshold {
  double lower = 0;
  double upper = 0;
};

// threshold * S: a value that contains the loss scale S is compared with it as if it were divided by S.
Threshold scaled_threshold(double threshold, double scale);

// The bins that can hold something, first to last: those from the smallest magnitude's to the largest's.
struct BinSpan {
  int first, last;
};
BinSpan occupied_bins(const TensorStatistics& statistics);

// The elements of one bin of the histogram (its index) among them.
CountBounds count_in_bin(const TensorStatistics& statistics, int bin, double threshold);

// The finite nonzero elements of magnitude <= threshold (or, strictly, < threshold). Needs StatisticsLevel::values.
CountBounds count_up_to(const TensorStatistics& statistics, Threshold threshold, bool strictly = false);

// A rounding of all finite elements. `base`: those finite and nonzero before it, of which shares are taken.
struct RoundingBounds {
  uint64_t base = 0;
  CountBounds flushed, subnormal, overflowed;

  RoundingBounds& operator+=(const RoundingBounds& other);
};

// What rounding x / S to `format` does, in the mode and with the subnormals that the tensor's op rounds with, x being the recorded
// values, of FP8 tensors without their quantization scale; S = 1: as scaled. For values recorded as stored in a narrower format,
// what they lost before can only be bounded: each was up to half an ulp away, and elements that were flushed or overflowed count in
// the upper bounds, and nothing is known (nullopt) where their number is not. Nothing is known either without a histogram.
std::optional<RoundingBounds> what_if(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format, double scale);
// The same of another rounding than the op's.
std::optional<RoundingBounds> what_if(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format, double scale,
                                      const Rounding& rounding);

// What the recorded rounding did, as the backend counted it; nullopt where it did not.
std::optional<RoundingBounds> as_seen(const TensorRow& row);

// Elements that were finite and nonzero before the rounding, as well as that is known.
uint64_t share_base(const TensorRow& row);

// count / base; 0 where base is 0.
double share(uint64_t count, uint64_t base);
// The same as a cell; NotApplicable where base is 0.
Cell share_cell(CountBounds count, uint64_t base);

}  // namespace ulpscope
