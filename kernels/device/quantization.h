// Quantization to FP8: the largest magnitude, the scale that follows from it, and the values times that. Scales stay on the device.
#pragma once

#include <bit>
#include <cstdint>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/quantization.h"

namespace ulpscope::device {

// Raises *largest to the bits of the largest magnitude, NaN left out; the order of bits is that of magnitudes.
struct LargestMagnitude {
  Input input;
  int64_t size;
  uint64_t* largest;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    constexpr uint32_t kInfinity = 0x7F800000;
    uint32_t found = 0;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads()) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(read<Block>(input, i)) & 0x7FFFFFFF;
      if (magnitude <= kInfinity && magnitude > found) found = magnitude;
    }
    const uint32_t of_warp = block.largest(found);
    if (block.lane() == 0) block.raise(largest, uint64_t{of_warp});
  }
};

// One thread: from the largest magnitude the scale, where none is given, and what else is told of it.
struct ScaleOfTensor {
  const uint64_t* largest;
  bool is_given;
  Input given;
  QuantizationScale rule;
  float *scale, *inverse, *amax;
  float* recorded;  // the scale once more, or nullptr

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    if (block.thread() != 0) return;
    const auto magnitude = std::bit_cast<float>(static_cast<uint32_t>(*largest));
    const float factor = is_given ? read<Block>(given, 0) : rule.of(magnitude, 1.0f);
    *scale = factor;
    *inverse = 1.0f / factor;
    *amax = magnitude;
    if (recorded != nullptr) *recorded = factor;
  }
};

struct Quantize {
  Input input;
  const float* scale;
  Output output;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const float factor = *scale;
    put_values(block, output, [&](int64_t i) { return read<Block>(input, i) * factor; });
  }
};

// One warp: the newest amax comes before the others, and the scale follows.
struct UpdateHistory {
  Input history, before, newest;  // the history in logical order; the scale before
  int64_t size;
  bool most_recent;
  QuantizationScale rule;
  float *shifted, *scale;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const float first = read<Block>(newest, 0);
    // What decides is amax_of() where that is positive: the largest that is, unless the first is NaN.
    uint32_t found = 0;
    for (int64_t i = block.lane(); i < size; i += kWarpThreads) {
      const float amax = i == 0 ? first : read<Block>(history, i - 1);
      shifted[i] = amax;
      const uint32_t bits = amax > 0 ? std::bit_cast<uint32_t>(amax) : 0;
      found = bits > found ? bits : found;
    }
    const auto largest = std::bit_cast<float>(block.largest(found));
    if (block.lane() == 0) *scale = rule.of(most_recent || lanes::is_nan(first) ? first : largest, read<Block>(before, 0));
  }
};

}  // namespace ulpscope::device
