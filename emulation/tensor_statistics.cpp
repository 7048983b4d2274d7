#include "ulpscope/emulation/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ulpscope {

uint64_t ExponentHistogram::total() const { return std::accumulate(bins.begin(), bins.end(), below_range + above_range); }

void ExponentHistogram::merge(const ExponentHistogram& other) {
  for (int i = 0; i < kBins; ++i) bins[i] += other.bins[i];
  below_range += other.below_range;
  above_range += other.above_range;
}

void HealthCounts::merge(const HealthCounts& other) {
  count += other.count;
  nan += other.nan;
  positive_infinity += other.positive_infinity;
  negative_infinity += other.negative_infinity;
  zeros += other.zeros;
}

void TensorStatistics::merge(const TensorStatistics& other) {
  if (smallest == 0) {
    smallest = other.smallest;
  } else if (other.smallest != 0) {
    smallest = std::min(smallest, other.smallest);
  }
  largest = std::max(largest, other.largest);
  health().merge(other);
  negatives += other.negatives;
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
  histogram.merge(other.histogram);
}

void RoundingCounts::merge(const RoundingCounts& other) {
  flushed += other.flushed;
  subnormal += other.subnormal;
  inexact_subnormal += other.inexact_subnormal;
  overflowed += other.overflowed;
  rescued += other.rescued;
  saturated += other.saturated;
}

double headroom(const FloatFormat& format, double largest) {
  if (largest == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::log2(format.largest_finite()) - std::log2(largest);
}

}  // namespace ulpscope
