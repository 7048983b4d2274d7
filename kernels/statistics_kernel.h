// The counting of one block, compiled for every SIMD target. Used by statistics.cpp alone.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/tensor_statistics.h"

namespace ulpscope {

// Where a rounding of FP32 values into a narrower format loses something, as bit patterns of magnitudes, which order as the values
// do.
struct RoundingThresholds {
  uint32_t flush_last = 0;      // the largest that rounds to zero
  uint32_t normal_first = 0;    // the smallest that rounds to a normal value
  uint32_t overflow_first = 0;  // the smallest that rounds beyond the largest finite value
  uint32_t rescue_last = 0;     // the largest that rounds to a finite value, and to zero once divided by the loss scale
  float subnormal_step =
      0;  // adding and subtracting it rounds a magnitude below normal_first to a multiple of the smallest subnormal

  RoundingThresholds() = default;
  RoundingThresholds(const FloatFormat& format, double scale);
};

// Of the finite values of a block, or of several.
struct BlockSums {
  double sum = 0;
  double sum_of_squares = 0;
};

// What is counted: all of it at level full (but no sums); count, NaN, Inf, zeros and the rounding at level health.
struct BlockCounts {
  TensorStatistics statistics;
  RoundingCounts rounding;
};

// Adds what is counted of a block to `counts` and gives its sums (of level full). `thresholds` is nullptr where nothing is rounded.
// `streamed`: the values come from memory, not from a cache, and more of them follow. The CPU's floating-point mode must be the
// default one.
BlockSums count_block(const float* values, int64_t n, StatisticsLevel level, const RoundingThresholds* thresholds, bool streamed,
                      BlockCounts& counts);

// Level health of a block that is rounded at the same time, into `out`.
using CountAndRound = void (*)(const float* values, int64_t n, const RoundingThresholds& thresholds, uint16_t* out,
                               BlockCounts& counts);
// To this format; nullptr where it has no 16-bit encodings: then counting and rounding are two passes.
CountAndRound count_health_and_round(const FloatFormat& format);

// Level health of a block of f16 or bf16 encodings, as they are stored.
void count_health(const FloatFormat& format, const uint16_t* encodings, int64_t n, TensorStatistics& statistics);

}  // namespace ulpscope
