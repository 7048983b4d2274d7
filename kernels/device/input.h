// How kernels read the elements of a tensor: widened, in the memory order of another.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope::device {

struct Input {
  const void* data;
  DType dtype;  // not f64, nor of FP8
  bool is_linear;
  ElementOrder elements;

  template <typename T>
  ULPSCOPE_DEVICE T at(int64_t offset) const {
    return static_cast<const T*>(data)[offset];
  }
};

// Element `i` as T, float or double.
template <class Block, typename T = float>
ULPSCOPE_DEVICE T read(const Input& input, int64_t i) {
  const int64_t offset = input.is_linear ? i : input.elements.offset_of(i);
  switch (input.dtype) {
    case DType::f16:
      return Block::from_f16(input.at<uint16_t>(offset));
    case DType::bf16:
      return bf16_to_float(input.at<uint16_t>(offset));
    case DType::i64:
      return static_cast<T>(input.at<int64_t>(offset));
    case DType::i32:
      return static_cast<T>(input.at<int32_t>(offset));
    case DType::u8:
    case DType::boolean:
      return static_cast<T>(input.at<uint8_t>(offset));
    default:
      return input.at<float>(offset);
  }
}

}  // namespace ulpscope::device
