// Elementwise kernels: the formulas of formulas.h at the same element of each input.
#pragma once

#include <cstdint>
#include <utility>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/lanes.h"

namespace ulpscope::device {

inline constexpr int kMaxInputs = 4;

struct ElementwiseTensors {
  Input inputs[kMaxInputs];
  Output output;
};

template <class F>
struct Elementwise {
  F formula;
  ElementwiseTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const Output& output = tensors.output;
    const auto tile = block.template shared<Tile>();
    const int64_t begin = block.block() * output.tile;
    for (int i = block.thread(); i < output.tile && begin + i < output.size; i += block.threads())
      tile.write(i, value<Block>(begin + i, std::make_index_sequence<F::kInputs>()));
    put_tile(block, output);
  }

 private:
  template <class Block, size_t... input>
  ULPSCOPE_DEVICE float value([[maybe_unused]] int64_t i, std::index_sequence<input...>) const {
    return lanes::evaluate<float>(formula, read<Block>(tensors.inputs[input], i)...);
  }
};

}  // namespace ulpscope::device
