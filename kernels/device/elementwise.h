// Elementwise kernels: the formulas of formulas.h at the same element of each input, and dropout.
#pragma once

#include <cstdint>
#include <utility>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/dropout.h"
#include "ulpscope/kernels/lanes.h"

namespace ulpscope::device {

inline constexpr int kMaxInputs = 4;

struct ElementwiseTensors {
  Input inputs[kMaxInputs];
  Output output;
};

template <class Block, class F, size_t... input>
ULPSCOPE_DEVICE float value_of(const F& formula, const ElementwiseTensors& tensors, [[maybe_unused]] int64_t i,
                               std::index_sequence<input...>) {
  return lanes::evaluate<float>(formula, read<Block>(tensors.inputs[input], i)...);
}

template <class F>
struct Elementwise {
  F formula;
  ElementwiseTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, tensors.output,
               [this](int64_t i) { return value_of<Block>(formula, tensors, i, std::make_index_sequence<F::kInputs>()); });
  }
};

struct DropOut {
  Dropout rule;
  ElementwiseTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, tensors.output, [this](int64_t i) {
      const auto element = static_cast<uint64_t>(tensors.output.logical.offset_of(i));
      return read<Block>(tensors.inputs[0], i) * static_cast<float>(rule.factor(element));
    });
  }
};

// Integers, through FP64: value(element) of a formula of at most one input, and how many are zero, which *zeros counts.
template <class F>
struct ElementwiseIntegers {
  F formula;
  Input input;
  void* data;
  DType dtype;
  int64_t size;
  ElementOrder elements;  // of the output, in logical order
  uint64_t* zeros;        // nullptr: not counted

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    uint32_t found = 0;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads()) {
      const auto value = static_cast<int64_t>(value_at<Block>(i));
      found += store(elements.offset_of(i), value) == 0;
    }
    const uint32_t of_warp = block.sum(found);
    if (zeros != nullptr && block.lane() == 0) block.add(zeros, uint64_t{of_warp});
  }

 private:
  template <class Block>
  ULPSCOPE_DEVICE double value_at(int64_t i) const {
    if constexpr (F::kInputs == 0) {
      return lanes::evaluate<double>(formula);
    } else {
      return lanes::evaluate<double>(formula, read<Block, double>(input, i));
    }
  }
  // What is left of the value in the output's type.
  ULPSCOPE_DEVICE int64_t store(int64_t offset, int64_t value) const {
    switch (size_of(dtype)) {
      case sizeof(int64_t):
        return static_cast<int64_t*>(data)[offset] = value;
      case sizeof(int32_t):
        return static_cast<int32_t*>(data)[offset] = static_cast<int32_t>(value);
      default:
        return static_cast<uint8_t*>(data)[offset] = static_cast<uint8_t>(value);
    }
  }
};

}  // namespace ulpscope::device
