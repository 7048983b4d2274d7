// The output path of all kernels: takes the wide values of an output, a tile at a time, rounds each once, counts what the call's
// record asks for, and stores it. The bits are the CPU's, those of sums too: they are formed in the order of sum_order.h.
#pragma once

#include <bit>
#include <cstdint>

#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/tensor_statistics.h"
#include "ulpscope/kernels/counted_rounding.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/statistics_kernel.h"
#include "ulpscope/kernels/sum_order.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope::device {

// The values of a block of the grid on their way out. Kernels write elements 0, ..., n - 1 of it, or parts of several outputs.
struct Tile {
  using Element = float;
  static constexpr int kSize = kStatisticsBlock;
  static constexpr const char* kName = "tile";
};

struct ExponentCounts {
  using Element = uint32_t;
  static constexpr int kSize = ExponentHistogram::kBins;
  static constexpr const char* kName = "exponents";
};

// The lanes of a warp that forms the sums of a tile, of several outputs, between its parts.
struct SumsOfParts {
  using Element = double;
  static constexpr int kSize = 4 * kWarpThreads;
  static constexpr const char* kName = "sums of parts";
};

// What was counted of an output, all zero at first. Of what is the smallest the complement is kept, so that it is raised as well.
struct OutputCounts {
  uint64_t nan, positive_infinity, negative_infinity, zeros, negatives;
  uint64_t flushed, subnormal, inexact_subnormal, overflowed, rescued, saturated;
  uint64_t largest, smallest_complement;  // magnitudes, as bit patterns of FP32
  uint64_t first_nonfinite_complement;    // logical index of the first element that is NaN or Inf as it is stored
  uint64_t fingerprint;                   // of what is stored
  uint64_t exponents[ExponentHistogram::kBins];
};

struct Output {
  void* data;   // nullptr: nothing is stored
  DType dtype;  // f32, f16, bf16, or of FP8
  int64_t size;
  int tile;  // elements of each block of the grid: Tile::kSize where sums are asked for, at most that otherwise
  StatisticsLevel level;
  bool counts_rounding;
  RoundingThresholds thresholds;  // of a rounding to nearest even
  bool is_special;                // another rounding, or FP8: `rounding`, with the bits of `random` where it is stochastic
  CountedRounding rounding;
  RandomStream random;
  bool is_stepwise;  // every operation on the way rounded
  StepwiseRounding stepwise;
  ElementOrder logical;  // what logical index an element has
  OutputCounts* counts;  // nullptr: nothing is counted
  BlockSums* sums;       // one for each tile
};

template <class Block>
ULPSCOPE_DEVICE double shuffle_down(Block& block, double value, int lanes) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint32_t high = block.shuffle_down(static_cast<uint32_t>(bits >> 32), lanes);
  const uint32_t low = block.shuffle_down(static_cast<uint32_t>(bits), lanes);
  return std::bit_cast<double>(uint64_t{high} << 32 | low);
}

template <class Block>
ULPSCOPE_DEVICE uint64_t smallest(Block& block, uint64_t value) {
  const auto high = static_cast<uint32_t>(value >> 32), least = block.smallest(high);
  return uint64_t{least} << 32 | block.smallest(high == least ? static_cast<uint32_t>(value) : ~0u);
}

// Adds n values from `at` on to the sums of a tile, by one warp: half of it adds the values, half their squares, each thread in a
// lane of sum_order.h. Its last part gives the sums.
template <class Block, class Values>
ULPSCOPE_DEVICE void add_up(Block& block, const Values& values, int at, int n, int output, bool is_first, BlockSums* sums) {
  static_assert(kWarpThreads == 2 * kSumLanes);
  const auto kept = block.template shared<SumsOfParts>();
  const int lane = output * kWarpThreads + block.lane();
  const bool squares = block.lane() >= kSumLanes;
  double total = is_first ? 0 : kept.read(lane);
  for (int i = block.lane() % kSumLanes; i < n; i += kSumLanes) {
    const float value = values.read(at + i);
    if ((std::bit_cast<uint32_t>(value) & 0x7F800000) == 0x7F800000) continue;
    const double wide = value;
    total += squares ? wide * wide : wide;
  }
  if (sums == nullptr) return kept.write(lane, total);
  for (int width = kSumLanes / 2; width > 0; width /= 2) total += shuffle_down(block, total, width);
  if (block.lane() == 0) sums->sum = total;
  if (block.lane() == kSumLanes) sums->sum_of_squares = total;
}

// Apart, so that a tile's registers are not those that Philox needs.
ULPSCOPE_DEVICE_NOINLINE inline uint32_t random_bits_apart(const RandomStream& random, uint64_t element) {
  return random_bits_of(random, element);
}

// What the value of element `index` is stored as, in the low bits.
template <class Block>
ULPSCOPE_DEVICE uint32_t encoding_of(const Output& output, int64_t index, float value) {
  if (output.is_special) {
    const bool is_stochastic = output.rounding.rounding.mode == RoundingMode::stochastic;
    const uint32_t random = is_stochastic ? random_bits_apart(output.random, static_cast<uint64_t>(index)) : 0;
    return static_cast<uint32_t>(output.rounding.encoding_of(value, random));
  }
  if (output.dtype == DType::f16) return Block::to_f16(value);
  if (output.dtype == DType::bf16) return Block::to_bf16(value);
  return std::bit_cast<uint32_t>(value);
}
// The bits that are set in what is not finite, and only there.
ULPSCOPE_DEVICE inline uint32_t nonfinite_bits(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x7C00;
    case DType::bf16:
      return 0x7F80;
    case DType::f8_e4m3:
      return 0x7F;
    case DType::f8_e5m2:
      return 0x7C;
    default:
      return 0x7F800000;
  }
}
ULPSCOPE_DEVICE inline bool is_nonfinite(const Output& output, uint32_t encoding) {
  const uint32_t bits = nonfinite_bits(output.dtype);
  return (encoding & bits) == bits;
}
ULPSCOPE_DEVICE inline void store(const Output& output, int64_t index, uint32_t encoding) {
  if (output.dtype == DType::f32) {
    static_cast<uint32_t*>(output.data)[index] = encoding;
  } else if (is_quantized(output.dtype)) {
    static_cast<uint8_t*>(output.data)[index] = static_cast<uint8_t>(encoding);
  } else {
    static_cast<uint16_t*>(output.data)[index] = static_cast<uint16_t>(encoding);
  }
}

// What one thread counts.
class Tally {
 public:
  ULPSCOPE_DEVICE explicit Tally(const Output& output) : output_(output) {}

  // Element `index` of the output, in memory order: its wide value, the one that was rounded, which is another in an output that is
  // stepwise, and what that is stored as. `exponents`: the block's.
  template <class Counts>
  ULPSCOPE_DEVICE void take(int64_t index, float value, float rounded, uint32_t encoding, const Counts& exponents) {
    low_halves_ += encoding & 0xFFFF;
    high_halves_ += encoding >> 16;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    if (is_nonfinite(output_, encoding)) {
      const auto logical = static_cast<uint64_t>(output_.logical.offset_of(index));
      if (logical < first_nonfinite_) first_nonfinite_ = logical;
    }
    if (magnitude >= kInfinity) {
      nan_ += magnitude > kInfinity;
      positive_infinity_ += bits == kInfinity;
      negative_infinity_ += magnitude == kInfinity && bits != magnitude;
    } else if (magnitude == 0) {
      ++zeros_;
    } else {
      if (output_.level == StatisticsLevel::values) {
        negatives_ += bits != magnitude;
        largest_ = magnitude > largest_ ? magnitude : largest_;
        smallest_ = magnitude < smallest_ ? magnitude : smallest_;
        count_exponent(static_cast<int>(magnitude >> 23), exponents);
      }
      if (output_.is_stepwise) {
        output_.stepwise.count(value, rounded, rounding_);
      } else if (output_.is_special) {
        output_.rounding.count(value, encoding, rounding_,
                               [&] { return random_bits_apart(output_.random, static_cast<uint64_t>(index)); });
      } else if (output_.counts_rounding) {
        count_rounding(magnitude);
      }
    }
  }

  // After the last element.
  template <class Counts>
  ULPSCOPE_DEVICE void finish_exponents(const Counts& exponents) {
    if (run_ > 0) exponents.add(exponent_, run_);
  }
  // Adds what all threads of a warp counted.
  template <class Block>
  ULPSCOPE_DEVICE void add_to(Block& block, OutputCounts& counts) const {
    add(block, nan_, counts.nan);
    add(block, positive_infinity_, counts.positive_infinity);
    add(block, negative_infinity_, counts.negative_infinity);
    add(block, zeros_, counts.zeros);
    if (output_.level == StatisticsLevel::values) {
      add(block, negatives_, counts.negatives);
      raise(block, block.largest(largest_), counts.largest);
      raise(block, uint32_t{~block.smallest(smallest_)}, counts.smallest_complement);
    }
    if (output_.counts_rounding) {
      add(block, rounding_.flushed, counts.flushed);
      add(block, rounding_.subnormal, counts.subnormal);
      add(block, rounding_.inexact_subnormal, counts.inexact_subnormal);
      add(block, rounding_.overflowed, counts.overflowed);
      add(block, rounding_.rescued, counts.rescued);
      add(block, rounding_.saturated, counts.saturated);
    }
    if (block.ballot(first_nonfinite_ != kNone) != 0)
      raise(block, ~smallest(block, first_nonfinite_), counts.first_nonfinite_complement);
    // Of a tile both sums stay below 2^29.
    const uint64_t high = block.sum(high_halves_), low = block.sum(low_halves_);
    if (block.lane() == 0) block.add(&counts.fingerprint, (high << 16) + low);
  }

 private:
  static constexpr uint32_t kInfinity = 0x7F800000;
  static constexpr uint64_t kNone = ~uint64_t{0};

  // Equal exponents that follow each other are counted first: in tensors whose values all have one, threads would wait for each
  // other at it.
  template <class Counts>
  ULPSCOPE_DEVICE void count_exponent(int exponent, const Counts& exponents) {
    if (exponent != exponent_) {
      if (run_ > 0) exponents.add(exponent_, run_);
      exponent_ = exponent;
      run_ = 0;
    }
    ++run_;
  }
  ULPSCOPE_DEVICE void count_rounding(uint32_t magnitude) {
    const RoundingThresholds& thresholds = output_.thresholds;
    if (magnitude >= thresholds.overflow_first) {
      ++rounding_.overflowed;
    } else if (magnitude <= thresholds.flush_last) {
      ++rounding_.flushed;
    } else {
      if (magnitude < thresholds.normal_first) {
        ++rounding_.subnormal;
        const auto value = std::bit_cast<float>(magnitude);
        rounding_.inexact_subnormal += (value + thresholds.subnormal_step) - thresholds.subnormal_step != value;
      }
      rounding_.rescued += magnitude <= thresholds.rescue_last;
    }
  }
  template <class Block>
  ULPSCOPE_DEVICE static void add(Block& block, uint32_t count, uint64_t& total) {
    const uint32_t of_warp = block.sum(count);
    if (block.lane() == 0 && of_warp > 0) block.add(&total, uint64_t{of_warp});
  }
  template <class Block>
  ULPSCOPE_DEVICE static void raise(Block& block, uint64_t of_warp, uint64_t& total) {
    if (block.lane() == 0 && of_warp > 0) block.raise(&total, of_warp);
  }

  const Output& output_;
  uint32_t nan_ = 0, positive_infinity_ = 0, negative_infinity_ = 0, zeros_ = 0, negatives_ = 0;
  struct {
    uint32_t flushed = 0, subnormal = 0, inexact_subnormal = 0, overflowed = 0, rescued = 0, saturated = 0;
  } rounding_;
  uint32_t largest_ = 0, smallest_ = ~0u;
  uint64_t first_nonfinite_ = kNone;
  uint32_t low_halves_ = 0, high_halves_ = 0;
  int exponent_ = -1;
  uint32_t run_ = 0;
};

// Takes elements begin, ..., begin + n - 1 of the output in memory order: a part of the block's tile, which begins at element
// block() * output.tile, or all of it. Their values lie at `at` in the shared tile, and at `counted_at` those that are counted: the
// same but for outputs that are stepwise. Values are written; no barrier has to be between. `number`: the output's among those of
// the kernel.
template <class Block>
ULPSCOPE_DEVICE_NOINLINE void put_part(Block& block, const Output& output, int64_t begin, int n, int at, int counted_at,
                                       int number) {
  const auto tile = block.template shared<Tile>();
  const auto exponents = block.template shared<ExponentCounts>();
  const bool has_sums = output.counts != nullptr && output.level == StatisticsLevel::values;
  if (has_sums) {
    for (int i = block.thread(); i < ExponentCounts::kSize; i += block.threads()) exponents.write(i, 0);
  }
  block.barrier();
  // The first warp forms the sums, where there are others for the rest.
  if (has_sums && block.warp() == 0) {
    const int64_t tile_begin = block.block() * output.tile, end = begin + n;
    const bool is_last = end == output.size || end == tile_begin + output.tile;
    add_up(block, tile, counted_at, n, number, begin == tile_begin, is_last ? output.sums + block.block() : nullptr);
  }
  const int apart = has_sums && block.warps() > 1 ? kWarpThreads : 0;
  Tally tally(output);
  for (int i = block.thread() < apart ? n : block.thread() - apart; i < n; i += block.threads() - apart) {
    const float value = tile.read(at + i);
    const uint32_t encoding = encoding_of<Block>(output, begin + i, value);
    if (output.data != nullptr) store(output, begin + i, encoding);
    if (output.counts == nullptr) continue;
    tally.take(begin + i, counted_at == at ? value : tile.read(counted_at + i), value, encoding, exponents);
  }
  if (output.counts == nullptr) return;
  if (has_sums) tally.finish_exponents(exponents);
  tally.add_to(block, *output.counts);
  if (!has_sums) return;
  block.barrier();
  for (int i = block.thread(); i < ExponentCounts::kSize; i += block.threads()) {
    if (const uint32_t count = exponents.read(i); count > 0) block.add(&output.counts->exponents[i], uint64_t{count});
  }
}

// Takes the block's tile.
template <class Block>
ULPSCOPE_DEVICE void put_tile(Block& block, const Output& output) {
  const int64_t begin = block.block() * output.tile, left = output.size - begin;
  put_part(block, output, begin, static_cast<int>(left < output.tile ? left : output.tile), 0, 0, 0);
}

// Computes the block's tile, value(i) for element i of the output, and takes it.
template <class Block, class Value>
ULPSCOPE_DEVICE void put_values(Block& block, const Output& output, const Value& value) {
  const auto tile = block.template shared<Tile>();
  const int64_t begin = block.block() * output.tile;
  for (int i = block.thread(); i < output.tile && begin + i < output.size; i += block.threads()) tile.write(i, value(begin + i));
  put_tile(block, output);
}

}  // namespace ulpscope::device
