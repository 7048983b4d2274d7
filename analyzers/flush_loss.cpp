#include "ulpscope/analyzers/flush_loss.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

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
  const double lost = std::sqrt(static_cast<double>(flushed)) * thresholds.flushed.perhaps_below, norm = std::sqrt(squares);
  return lost < norm ? lost / norm : 1.0;
}

void FlushLoss::add(const TensorRow& row, const FloatFormat& format, const Rounding& rounding) {
  if (!row.rounding_known || row.known == StatisticsLevel::none || share_base(row) == 0) return;
  ++rows;
  const double bound = flushed_norm_bound(row, format, rounding);
  felt += bound > std::max(kFelt, std::ldexp(1.0, -format.fraction_bits - 1));
  most_norm = std::max(most_norm, bound);
}

void FlushLoss::add(const FlushLoss& other) {
  rows += other.rows;
  felt += other.felt;
  most_norm = std::max(most_norm, other.most_norm);
}

}  // namespace ulpscope
