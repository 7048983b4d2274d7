// Block formats: elements of a few bits that share a scale with their neighbours, as the Open Compute Project's Microscaling
// formats (OCP MX v1.0, 2023) and NVIDIA's NVFP4 have it. The value of an element is its number times its block's scale (times the
// tensor's scale, where the format has one).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/round_array.h"

namespace ulpscope {

// How a block's scale follows from its largest magnitude, m, and the elements' largest number, l. With a tensor scale, m is
// divided by it first.
enum class ScaleRule : uint8_t {
  floor,     // 2^(floor(log2 m) - floor(log2 l)): OCP MX v1.0. An m whose significand is above l's saturates.
  round_up,  // the least power of two that m / l does not exceed: nothing saturates, at the cost of up to one bit
  nearest,   // m / l rounded to the scale's format, of NVFP4
};

struct BlockFormat {
  std::string_view name;
  const FloatFormat* element;
  const FloatFormat* scale;
  size_t block_size;  // elements
  ScaleRule rule;
  bool has_tensor_scale = false;  // an FP32 number, which brings the largest scale to the largest number of its format
};

inline constexpr BlockFormat mxfp8_e4m3{"mxfp8_e4m3", &e4m3, &e8m0, 32, ScaleRule::floor};
inline constexpr BlockFormat mxfp8_e5m2{"mxfp8_e5m2", &e5m2, &e8m0, 32, ScaleRule::floor};
inline constexpr BlockFormat mxfp6_e3m2{"mxfp6_e3m2", &e3m2, &e8m0, 32, ScaleRule::floor};
inline constexpr BlockFormat mxfp6_e2m3{"mxfp6_e2m3", &e2m3, &e8m0, 32, ScaleRule::floor};
inline constexpr BlockFormat mxfp4{"mxfp4", &e2m1, &e8m0, 32, ScaleRule::floor};
inline constexpr BlockFormat nvfp4{"nvfp4", &e2m1, &e4m3, 16, ScaleRule::nearest, true};

inline constexpr std::array kBlockFormats{&mxfp8_e4m3, &mxfp8_e5m2, &mxfp6_e3m2, &mxfp6_e2m3, &mxfp4, &nvfp4};
// The row called `name`; throws a usage Error that names all of them for another.
const BlockFormat& find_block_format(std::string_view name);

// Where blocks lie in an array of outer * length * inner elements, as of a tensor whose axis of `length` elements they go along.
// The last block of a line is shorter where the block size does not divide the length.
struct BlockAxis {
  size_t outer = 1, length = 0, inner = 1;
  size_t size() const { return outer * length * inner; }
  size_t blocks(size_t block_size) const { return outer * inner * ((length + block_size - 1) / block_size); }
};

// What quantizing changed.
struct QuantizationLoss {
  uint64_t elements = 0;
  uint64_t inexact = 0;    // finite elements that came out as other values
  uint64_t saturated = 0;  // beyond the largest element
  uint64_t flushed = 0;    // not zero before, zero now
  uint64_t subnormal = 0;  // below the smallest normal element, not zero
  uint64_t nonfinite_blocks = 0;
  double signal = 0, noise = 0;    // sums of squares of the values and of the errors, over blocks that are finite
  double largest_error = 0;        // magnitude
  double signal_to_noise() const;  // error_measures.h
};

// A quantized array: an encoding a byte, elements in their order; scales in the order of blocks, line after line.
struct BlockArray {
  BlockArray(const BlockFormat& block_format, const BlockAxis& block_axis) : format(&block_format), axis(block_axis) {}

  const BlockFormat* format;
  BlockAxis axis;
  std::vector<uint8_t> elements, scales;
  float tensor_scale = 1;
};

// Elements are value / divisor, rounded once, where the divisor is the block's scale, or the FP32 product of it and the tensor's;
// what is beyond the largest element saturates, whatever `rounding` says of overflow. With NaN or Inf in it a block has the scale
// NaN, and all its values are NaN then (formats' own NaN and Inf stay unused); it is left out of the tensor's scale. A block of
// zeros has the smallest scale, and so has one whose scale rounds to zero. Where the product of the scales is zero, the values are
// zero. Throws a usage Error for other numbers of values than the axis has, a null pointer to values, a format without elements in
// a block, elements or scales of more than 8 bits, scales without NaN, and a tensor scale beside scales that go beyond FP32's
// range.
void quantize(BlockArray& array, std::span<const float> values, const Rounding& rounding = {}, const RandomStream& random = {});
// The values, products rounded to FP32: exact without a tensor scale, but for those below FP32's range, and those beyond it, which
// become Inf where rule round_up took the largest FP32 numbers to a larger power of two. This and loss_of throw a
// usage Error for an array that is not quantized, and as quantize() does.
void dequantize(const BlockArray& array, std::span<float> values);
// What quantizing `values` to `array` lost.
QuantizationLoss loss_of(const BlockArray& array, std::span<const float> values);

}  // namespace ulpscope
