// The scales of FP8 tensors, as NVIDIA's Transformer Engine has them: one a tensor, in FP32, by which values are multiplied before
// they are rounded.
//   current scaling  from the largest magnitude (amax) of the tensor itself
//   delayed scaling  from the amaxes of the calls before, the newest first; the scale is kept where they tell none
// Source: Transformer Engine, recipe/current_scaling.cu and recipe/delayed_scaling.cu; Micikevicius et al., "FP8 formats for deep
// learning" (arXiv:2209.05433).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "ulpscope/emulation/format.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

// The largest margin: up to it a scale, and its inverse, are finite in FP32 whatever the amax.
inline constexpr int kLargestMargin = 6;

// The largest power of two that is at most `value`, which is positive and finite.
constexpr float power_of_two_below(float value) {
  constexpr uint32_t kSmallestNormal = 0x00800000, kExponent = 0x7F800000;
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(bits < kSmallestNormal ? std::bit_floor(bits) : bits & kExponent);
}

struct QuantizationScale {
  double largest;  // that values are scaled to: the format's, divided by 2^margin, which is exact
  bool power_of_two;

  QuantizationScale(const FloatFormat& format, const Attributes& attributes)
      : largest(std::ldexp(format.largest_finite(), -static_cast<int>(attributes.value_or("margin", 0)))),
        power_of_two(attributes.value_or("power_of_two", 0) != 0) {}

  // largest / amax, rounded to FP32, or the power of two below. Where that is beyond FP32, FP32's largest; `otherwise` where amax
  // is zero or not finite.
  constexpr float of(float amax, float otherwise) const {
    if (!(amax > 0) || amax == std::numeric_limits<float>::infinity()) return otherwise;
    const float scale = std::min(static_cast<float>(largest) / amax, std::numeric_limits<float>::max());
    return power_of_two ? power_of_two_below(scale) : scale;
  }
};

// What delayed scaling takes for the amax: of `history` the largest, or the newest.
inline float amax_of(std::span<const float> history, bool most_recent) {
  return most_recent ? history.front() : *std::max_element(history.begin(), history.end());
}

}  // namespace ulpscope
