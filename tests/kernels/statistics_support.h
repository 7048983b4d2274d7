// Shared by the tests of statistics: data, SIMD targets, threads.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/simd_targets.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope::testing_support {

// Runs `body` once for each SIMD target that the CPU has.
inline void on_every_target(const std::function<void()>& body) {
  ulpscope::on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    body();
  });
}

// A view of n elements with the strides of a contiguous tensor.
inline TensorView vector_view(const void* data, DType dtype, int64_t n) {
  TensorView view;
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.rank = 1;
  view.shape = {n};
  view.strides = {1};
  return view;
}

inline float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// What blocks can look like, from the ordinary to the hostile.
enum class Data {
  normal,
  relu,
  negative,
  every_bit_pattern,
  every_finite,
  subnormal,
  nan,
  infinities,
  zeros,
  negative_zeros,
  powers
};
inline constexpr Data kAllData[] = {Data::normal,       Data::relu,           Data::negative, Data::every_bit_pattern,
                                    Data::every_finite, Data::subnormal,      Data::nan,      Data::infinities,
                                    Data::zeros,        Data::negative_zeros, Data::powers};

inline std::vector<float> make(Data kind, int64_t n, uint64_t seed = 1) {
  const Philox random(seed, static_cast<uint64_t>(kind));
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) {
    const auto z = static_cast<float>(random.normal(i));
    const uint32_t bits = random.bits(i);
    switch (kind) {
      case Data::normal:
        values[i] = z;
        break;
      case Data::relu:
        values[i] = z > 0 ? z : 0;
        break;
      case Data::negative:
        values[i] = -std::abs(z) * 1e-6f;
        break;
      case Data::every_bit_pattern:
        values[i] = from_bits(bits);
        break;
      case Data::every_finite:
        values[i] = from_bits((bits & 0x7F800000) == 0x7F800000 ? bits ^ 0x800000 : bits);
        break;
      case Data::subnormal:
        values[i] = from_bits(bits & 0x80FFFFFF);
        break;
      case Data::nan:
        values[i] = from_bits(bits | 0x7F800001);
        break;
      case Data::infinities:
        values[i] = from_bits(0x7F800000 | (bits & 0x80000000));
        break;
      case Data::zeros:
        values[i] = 0;
        break;
      case Data::negative_zeros:
        values[i] = -0.0f;
        break;
      // Exact powers of two and their neighbours, over all of the range: the edges of bins and thresholds.
      case Data::powers:
        values[i] = from_bits((bits & 0x80000000) | (((bits >> 8) % 255) << 23)) + 0.0f;
        break;
    }
  }
  return values;
}

// Loops on threads of their own, blocks taken in an order that the threads decide.
inline ParallelFor threads_for(int threads) {
  return [threads](int64_t n, const std::function<void(int64_t)>& body) {
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        for (int64_t i = n - 1 - t; i >= 0; i -= threads) body(i);
      });
    }
    for (std::thread& thread : running) thread.join();
  };
}

inline OutputRecord wanting(StatisticsLevel level, double scale = 1.0) {
  OutputRecord record;
  record.wanted = level;
  record.scale = scale;
  return record;
}

inline OutputRecord collect(const TensorView& view, StatisticsLevel level = StatisticsLevel::values,
                            const ParallelFor& parallel_for = serial_for) {
  OutputRecord record = wanting(level);
  collect_statistics(view, record, parallel_for);
  return record;
}

// Field by field, so that a failure says which; reals by their bits.
inline void expect_same(const TensorStatistics& counted, const TensorStatistics& expected) {
  EXPECT_EQ(counted.count, expected.count);
  EXPECT_EQ(counted.nan, expected.nan);
  EXPECT_EQ(counted.positive_infinity, expected.positive_infinity);
  EXPECT_EQ(counted.negative_infinity, expected.negative_infinity);
  EXPECT_EQ(counted.zeros, expected.zeros);
  EXPECT_EQ(counted.negatives, expected.negatives);
  EXPECT_EQ(std::bit_cast<uint64_t>(counted.smallest), std::bit_cast<uint64_t>(expected.smallest));
  EXPECT_EQ(std::bit_cast<uint64_t>(counted.largest), std::bit_cast<uint64_t>(expected.largest));
  EXPECT_EQ(std::bit_cast<uint64_t>(counted.sum), std::bit_cast<uint64_t>(expected.sum));
  EXPECT_EQ(std::bit_cast<uint64_t>(counted.sum_of_squares), std::bit_cast<uint64_t>(expected.sum_of_squares));
  EXPECT_EQ(counted.histogram.bins, expected.histogram.bins);
  EXPECT_EQ(counted.histogram.below_range, expected.histogram.below_range);
  EXPECT_EQ(counted.histogram.above_range, expected.histogram.above_range);
}

inline void expect_same(const RoundingCounts& counted, const RoundingCounts& expected) {
  EXPECT_EQ(counted.flushed, expected.flushed);
  EXPECT_EQ(counted.subnormal, expected.subnormal);
  EXPECT_EQ(counted.inexact_subnormal, expected.inexact_subnormal);
  EXPECT_EQ(counted.overflowed, expected.overflowed);
  EXPECT_EQ(counted.rescued, expected.rescued);
}

}  // namespace ulpscope::testing_support
