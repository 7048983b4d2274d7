#include "ulpscope/analyzers/totals/flush_loss.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

namespace {

// At most, of the squares of what a rounding flushed: whatever lies in bins below the threshold was, and the rest of it is no
// larger than the largest that is.
double flushed_squares(const TensorRow& row, const MagnitudeThreshold& threshold) {
  uint64_t rest = row.rounding.flushed;
  double squares = 0;
  const auto take = [&](uint64_t n, double magnitude) {
    const uint64_t taken = std::min(n, rest);
    squares += static_cast<double>(taken) * magnitude * magnitude;
    rest -= taken;
  };
  if (row.known == StatisticsLevel::values && row.before_rounding) {
    const ExponentHistogram& histogram = row.statistics.histogram;
    take(histogram.below_range, 0x1p-149);
    for (int bin = occupied_bins(row.statistics).first; rest > 0 && bin < ExponentHistogram::kBins; ++bin) {
      const double edge = std::ldexp(1.0, ExponentHistogram::exponent(bin) + 1);
      if (edge > threshold.surely_below) break;
      take(histogram.bins[bin], edge);
    }
  }
  take(rest, threshold.perhaps_below);
  return squares;
}

}  // namespace

double flushed_norm_bound(const TensorRow& row, const FloatFormat& format, const Rounding& rounding) {
  const uint64_t flushed = row.rounding.flushed;
  if (!row.rounding_known || flushed == 0) return 0;
  const MagnitudeThresholds thresholds = magnitude_thresholds(format, rounding);
  double squares = row.statistics.sum_of_squares;
  if (row.known != StatisticsLevel::values) {
    const uint64_t small = flushed + row.rounding.subnormal, base = share_base(row);
    const double normal = thresholds.normal.perhaps_above(), least = thresholds.flushed.surely_below;
    const uint64_t normals = base > small ? base - small : 0;
    squares = static_cast<double>(normals) * normal * normal + static_cast<double>(row.rounding.subnormal) * least * least;
  }
  const double lost = std::sqrt(flushed_squares(row, thresholds.flushed)), norm = std::sqrt(squares);
  return lost < norm ? lost / norm : 1.0;
}

double felt_part(const FloatFormat& format) { return std::max(0.01, std::ldexp(1.0, -format.fraction_bits - 1)); }

void FlushLoss::add(const TensorRow& row, const FloatFormat& format, const Rounding& rounding) {
  if (!row.rounding_known || row.known == StatisticsLevel::none || share_base(row) == 0) return;
  ++rows;
  const double bound = flushed_norm_bound(row, format, rounding);
  felt += bound > felt_part(format);
  most_norm = std::max(most_norm, bound);
}

void FlushLoss::add(const FlushLoss& other) {
  rows += other.rows;
  felt += other.felt;
  most_norm = std::max(most_norm, other.most_norm);
}

}  // namespace ulpscope
