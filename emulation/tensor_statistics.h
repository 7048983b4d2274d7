// What is recorded of a tensor, as a plain struct that merges exactly over blocks, threads, steps and ranks.
// Definitions: docs/numerics.md.
#pragma once

#include <array>
#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope {

// Counts of finite nonzero values by binary exponent. Bin i, 1 <= i <= 254, holds 2^(i-127) <= |x| < 2^(i-126), that is, FP32
// values whose exponent field is i. Bin 0 holds the FP32 subnormals, 2^-149 <= |x| < 2^-126, together. FP64 values outside FP32's
// range are counted in below_range and above_range.
struct ExponentHistogram {
  static constexpr int kBins = 255;
  static constexpr int kBias = 127;
  std::array<uint64_t, kBins> bins{};
  uint64_t below_range = 0;
  uint64_t above_range = 0;

  // The exponent of the values in `bin`; for bin 0, that of the largest of them.
  static constexpr int exponent(int bin) { return bin - kBias; }
  uint64_t total() const;
  void merge(const ExponentHistogram& other);
  bool operator==(const ExponentHistogram&) const = default;
};

// What StatisticsLevel::health knows of the values.
struct HealthCounts {
  uint64_t count = 0;
  uint64_t nan = 0;
  uint64_t positive_infinity = 0;
  uint64_t negative_infinity = 0;
  uint64_t zeros = 0;

  void merge(const HealthCounts& other);
  bool operator==(const HealthCounts&) const = default;
};

// Integers are exact. Sums are accumulated in FP64 in one fixed order (docs/numerics.md), skipping NaN and Inf.
struct TensorStatistics : HealthCounts {
  uint64_t negatives = 0;  // finite, nonzero, sign set
  double smallest = 0;     // smallest magnitude of a finite nonzero value; 0 where there is none
  double largest = 0;      // largest magnitude of a finite value
  double sum = 0;
  double sum_of_squares = 0;
  ExponentHistogram histogram;

  uint64_t infinities() const { return positive_infinity + negative_infinity; }
  uint64_t nonfinite() const { return nan + infinities(); }
  uint64_t finite_nonzero() const { return count - nonfinite() - zeros; }
  HealthCounts& health() { return *this; }
  const HealthCounts& health() const { return *this; }
  void merge(const TensorStatistics& other);
  bool operator==(const TensorStatistics&) const = default;
};

// What one rounding into a narrower format did. All are exact.
struct RoundingCounts {
  uint64_t flushed = 0;            // nonzero before, zero after
  uint64_t subnormal = 0;          // nonzero after, below the smallest normal
  uint64_t inexact_subnormal = 0;  // those of them that rounding changed
  uint64_t overflowed = 0;         // finite before, Inf after, or saturated: kept at the largest finite value, though beyond it
  uint64_t rescued = 0;            // finite and nonzero after, while round(x / S) is zero; S is the loss scale that x contains
  // Those that overflowed of which a directed rounding mode made the largest finite value. Of formats all of whose roundings
  // saturate it is not counted.
  uint64_t saturated = 0;

  uint64_t infinite() const { return overflowed - saturated; }
  void merge(const RoundingCounts& other);
  bool operator==(const RoundingCounts&) const = default;
};

// Of an op that reads subnormals as zero: of that input which lost the largest share of its nonzero elements so.
struct InputFlushCounts {
  uint64_t nonzero = 0;  // finite ones; 0 also where the op reads subnormals as they are
  uint64_t flushed = 0;  // those of them that were subnormal in the input's format

  bool operator==(const InputFlushCounts&) const = default;
};

// How much is asked for. Each level contains the ones before.
enum class StatisticsLevel : uint8_t {
  none,
  health,  // HealthCounts and, where a narrower format is rounded to, the rounding counts
  values,  // all of TensorStatistics
};

// log2(largest finite value of `format` / largest magnitude); NaN where the tensor has no finite nonzero value.
double headroom(const FloatFormat& format, double largest);

}  // namespace ulpscope
