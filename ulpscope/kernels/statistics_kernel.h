// The counting of one block, compiled for every SIMD target. Used by statistics.cpp alone.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/tensor_statistics.h"
#include "ulpscope/kernels/statistics_sums.h"

namespace ulpscope {

// Where a rounding of FP32 values into a narrower format loses something, as bit patterns of magnitudes, which order as the values
// do.
struct RoundingThresholds {
  const FloatFormat* format_;
  double scale_;

  RoundingThresholds(const FloatFormat& format, double scale);
};

// What is counted: everything at level full, and what StatisticsLevel::health names at level health.
struct BlockCounts {
  TensorStatistics statistics;
  RoundingCounts rounding;
};

// Adds what is counted of the block to `counts` (but no sums) and gives its sums. `thresholds` is nullptr where nothing is rounded.
// The CPU's floating-point mode must be the default one.
BlockSums count_block(const float* values, int64_t n, StatisticsLevel level, const RoundingThresholds* thresholds,
                      BlockCounts& counts);

}  // namespace ulpscope
