#include "ulpscope/kernels/statistics_reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/sum_order.h"

namespace ulpscope {

namespace {

constexpr uint64_t kMagnitude = ~uint64_t{0} >> 1;
constexpr uint64_t kInfinity = uint64_t{0x7FF} << 52;

double wide(float value) { return f32_to_double(value); }
double wide(double value) { return value; }

void count_exponent(ExponentHistogram& histogram, uint64_t magnitude) {
  // Values below FP64's smallest normal lie below FP32's range all the same.
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent < -149) {
    ++histogram.below_range;
  } else if (exponent > 127) {
    ++histogram.above_range;
  } else {
    ++histogram.bins[std::max(exponent + ExponentHistogram::kBias, 0)];
  }
}

double square(double value) { return value * value; }
double itself(double value) { return value; }

// The sum of f(value) over the finite values, in the order of sum_order.h.
template <typename T>
double ordered_sum(const T* values, int64_t count, double (*f)(double)) {
  std::vector<double> blocks;
  for (int64_t begin = 0; begin < count; begin += kStatisticsBlock) {
    std::array<double, kSumLanes> lanes{};
    for (int64_t i = 0; i < std::min(kStatisticsBlock, count - begin); ++i) {
      const double value = wide(values[begin + i]);
      if ((std::bit_cast<uint64_t>(value) & kMagnitude) < kInfinity) lanes[i % kSumLanes] += f(value);
    }
    add_lanes(lanes.data());
    blocks.push_back(lanes[0]);
  }
  merge_by_tree(blocks.data(), static_cast<int64_t>(blocks.size()), [](double a, double b) { return a + b; });
  return blocks.empty() ? 0 : blocks[0];
}

template <typename T>
TensorStatistics statistics(const T* values, int64_t count) {
  TensorStatistics result;
  result.count = count;
  uint64_t smallest = kInfinity, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint64_t>(wide(values[i]));
    const uint64_t magnitude = bits & kMagnitude;
    const bool negative = bits != magnitude;
    if (magnitude > kInfinity) {
      ++result.nan;
    } else if (magnitude == kInfinity) {
      ++(negative ? result.negative_infinity : result.positive_infinity);
    } else if (magnitude == 0) {
      ++result.zeros;
    } else {
      result.negatives += negative;
      smallest = std::min(smallest, magnitude);
      largest = std::max(largest, magnitude);
      count_exponent(result.histogram, magnitude);
    }
  }
  if (largest > 0) result.smallest = std::bit_cast<double>(smallest);
  result.largest = std::bit_cast<double>(largest);
  result.sum = ordered_sum(values, count, itself);
  result.sum_of_squares = ordered_sum(values, count, square);
  return result;
}

template <typename T>
RoundingCounts rounding(const FloatFormat& format, const T* values, int64_t count, double scale) {
  RoundingCounts counts;
  const double flushed = format.flush_threshold();
  for (int64_t i = 0; i < count; ++i) {
    const double before = std::abs(wide(values[i]));
    if (!(before > 0) || std::isinf(before)) continue;
    const double after = round_to_format(format, before);
    counts.flushed += after == 0;
    counts.overflowed += !(after <= format.largest_finite());  // Inf, or NaN in a format without it
    if (after > 0 && after < format.smallest_normal()) {
      ++counts.subnormal;
      counts.inexact_subnormal += after != before;
    }
    // round(x / S) is zero iff x <= S * flushed, where all are real numbers. The power of two `flushed` multiplies exactly.
    counts.rescued += after > 0 && after <= format.largest_finite() && before <= scale * flushed;
  }
  return counts;
}

}  // namespace

TensorStatistics reference_statistics(const float* values, int64_t count) { return statistics(values, count); }
TensorStatistics reference_statistics(const double* values, int64_t count) { return statistics(values, count); }

RoundingCounts reference_rounding(const FloatFormat& format, const float* values, int64_t count, double scale) {
  return rounding(format, values, count, scale);
}
RoundingCounts reference_rounding(const FloatFormat& format, const double* values, int64_t count, double scale) {
  return rounding(format, values, count, scale);
}

}  // namespace ulpscope
