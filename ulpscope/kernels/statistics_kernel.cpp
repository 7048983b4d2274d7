#include "ulpscope/kernels/statistics_kernel.h"

#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {

RoundingThresholds::RoundingThresholds(const FloatFormat& format, double scale) : format_(&format), scale_(scale) {}

BlockSums count_block(const float* values, int64_t n, StatisticsLevel, const RoundingThresholds* thresholds, BlockCounts& counts) {
  TensorStatistics block = reference_statistics(values, n);
  const BlockSums sums{block.sum, block.sum_of_squares};
  counts.statistics.merge(block);
  if (thresholds) counts.rounding.merge(reference_rounding(*thresholds->format_, values, n, thresholds->scale_));
  return sums;
}

}  // namespace ulpscope
