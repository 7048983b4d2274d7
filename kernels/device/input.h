// How kernels read the elements of a tensor: widened, in the memory order of another.
#pragma once

#include <bit>
#include <cstdint>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope::device {

struct Input {
  const void* data;
  DType dtype;  // not f64, and of FP8 for stored_at() and read_stored() alone
  bool is_linear;
  bool flushes;  // subnormals are zeros
  ElementOrder elements;

  template <typename T>
  ULPSCOPE_DEVICE T at(int64_t offset) const {
    return static_cast<const T*>(data)[offset];
  }
};

// An encoding whose zeros in the exponent field are read as zero.
ULPSCOPE_DEVICE inline uint32_t flushed(uint32_t encoding, uint32_t exponent, uint32_t sign) {
  return (encoding & exponent) == 0 ? encoding & sign : encoding;
}

// The encoding at an offset.
ULPSCOPE_DEVICE inline uint32_t stored_at(const Input& input, int64_t offset) {
  switch (input.dtype) {
    case DType::f16: {
      const uint32_t encoding = input.at<uint16_t>(offset);
      return input.flushes ? flushed(encoding, 0x7C00, 0x8000) : encoding;
    }
    case DType::bf16: {
      const uint32_t encoding = input.at<uint16_t>(offset);
      return input.flushes ? flushed(encoding, 0x7F80, 0x8000) : encoding;
    }
    case DType::f32: {
      const uint32_t encoding = input.at<uint32_t>(offset);
      return input.flushes ? flushed(encoding, 0x7F800000, 0x80000000) : encoding;
    }
    case DType::f8_e4m3:
    case DType::f8_e5m2: {
      const uint32_t encoding = input.at<uint8_t>(offset);
      return input.flushes ? flushed(encoding, input.dtype == DType::f8_e4m3 ? 0x78 : 0x7C, 0x80) : encoding;
    }
    default:
      return input.at<uint8_t>(offset);
  }
}

// The element at an offset as T, float or double.
template <class Block, typename T = float>
ULPSCOPE_DEVICE T read_at(const Input& input, int64_t offset) {
  switch (input.dtype) {
    case DType::f16:
      return Block::from_f16(static_cast<uint16_t>(stored_at(input, offset)));
    case DType::bf16:
      return bf16_to_float(static_cast<uint16_t>(stored_at(input, offset)));
    case DType::i64:
      return static_cast<T>(input.at<int64_t>(offset));
    case DType::i32:
      return static_cast<T>(input.at<int32_t>(offset));
    case DType::u8:
    case DType::boolean:
      return static_cast<T>(input.at<uint8_t>(offset));
    default:
      return std::bit_cast<float>(stored_at(input, offset));
  }
}

// Element `i`.
template <class Block, typename T = float>
ULPSCOPE_DEVICE T read(const Input& input, int64_t i) {
  return read_at<Block, T>(input, input.is_linear ? i : input.elements.offset_of(i));
}

// The same of FP8 too, for what reads a tensor of any type: records and captures.
template <class Block, typename T = float>
ULPSCOPE_DEVICE T read_stored(const Input& input, int64_t i) {
  if (!is_quantized(input.dtype)) return read<Block, T>(input, i);
  const uint32_t encoding = input.at<uint8_t>(input.elements.offset_of(i)), magnitude = encoding & 0x7F, sign = encoding & 0x80;
  // The leading bits of FP16; e4m3 has another bias.
  if (input.dtype == DType::f8_e5m2) return Block::from_f16(static_cast<uint16_t>(encoding << 8));
  constexpr uint32_t kNaN = 0x7F, kNaNOfHalf = 0x7E00;
  const uint32_t half = sign << 8 | (magnitude == kNaN ? kNaNOfHalf : magnitude << 7);
  return Block::from_f16(static_cast<uint16_t>(half)) * 0x1p8f;
}

}  // namespace ulpscope::device
