// Row ops (rows.h of the folder above): a block of the grid takes one row after another, and its threads share the loops. Values
// are FP32 in global memory: what lies otherwise is widened first, and outputs go through the output path once all are there.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/sums.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/row_call.h"

namespace ulpscope::device {

struct LargestOfWarps {
  using Element = float;
  static constexpr int kSize = kMostThreads / kWarpThreads;
  static constexpr const char* kName = "largest of warps";
};

// The loops of rows.h. All threads of the block are in the same one. Behind it all that it reads of a row is read, and all that it
// writes is seen.
template <class Block>
class BlockLoops {
 public:
  using Value = float;
  ULPSCOPE_LANE_FUNCTION explicit BlockLoops(Block& block) : block_(block) {}

  template <class F, class... P>
  ULPSCOPE_DEVICE void map(const F& f, int64_t n, float* out, const P*... in) const {
    for (int64_t i = block_.thread(); i < n; i += block_.threads()) out[i] = apply(f, in[i]...);
    block_.barrier();
  }

  template <class F, class... P>
  ULPSCOPE_DEVICE float sum(const F& f, int64_t n, const P*... in) const {
    return sum_of<float>(block_, n, [&](int64_t i) { return apply(f, in[i]...); });
  }

  ULPSCOPE_DEVICE float largest(int64_t n, const float* x) const {
    const auto of_warps = block_.template shared<LargestOfWarps>();
    float value = x[0];
    for (int64_t i = block_.thread(); i < n; i += block_.threads()) value = larger(value, x[i]);
    for (int width = kWarpThreads / 2; width > 0; width /= 2) value = larger(value, block_.shuffle_down(value, width));
    if (block_.lane() == 0) of_warps.write(block_.warp(), value);
    block_.barrier();
    value = of_warps.read(0);
    for (int warp = 1; warp < block_.warps(); ++warp) value = larger(value, of_warps.read(warp));
    return value;
  }

  template <class F, class... T>
  ULPSCOPE_DEVICE float apply(const F& f, T... values) const {
    return lanes::evaluate<float>(f, values...);
  }

 private:
  // A NaN where there is one.
  ULPSCOPE_DEVICE static float larger(float a, float b) { return b > a || b != b ? b : a; }

  Block& block_;
};

// An operand of a row op. Of each row it has `count` values, which begin `stride` after those of the row before.
struct RowInput {
  Input input;
  const float* values;  // where they lie as FP32, one after the other; nullptr: each block widens those of its row
  int64_t stride, count;
};
struct RowOutput {
  float* values;
  int64_t stride;
};

// A row's values of an operand, widened into scratch where they do not lie as FP32.
template <class Block>
ULPSCOPE_DEVICE const float* row_values(Block& block, const RowInput& operand, int64_t row, float*& scratch) {
  const int64_t begin = row * operand.stride;
  if (operand.values != nullptr) return operand.values + begin;
  float* const widened = scratch;
  for (int64_t i = block.thread(); i < operand.count; i += block.threads()) widened[i] = read<Block>(operand.input, begin + i);
  scratch += operand.count;
  return widened;
}

struct RowTensors {
  int64_t n, rows;
  RowInput inputs[kMaxRowInputs];
  RowOutput outputs[kMaxRowOutputs];
  float* scratch;  // of each block for what it widens
  int64_t scratch_of_block;
};

template <class R>
struct RowKernel {
  R op;
  RowTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t row = block.block(); row < tensors.rows; row += block.blocks()) {
      RowCall<float> call;
      call.n = tensors.n;
      fill_inputs(block, row, call, std::make_index_sequence<std::size(R::kInputs)>());
      fill_outputs(row, call, std::make_index_sequence<std::size(R::kOutputs)>());
      block.barrier();
      op(BlockLoops<Block>(block), call);
    }
  }

 private:
  // One statement for each operand: arrays that loops index would lie in memory.
  template <class Block, size_t... input>
  ULPSCOPE_DEVICE void fill_inputs(Block& block, int64_t row, RowCall<float>& call, std::index_sequence<input...>) const {
    float* scratch = tensors.scratch + block.block() * tensors.scratch_of_block;
    ((call.inputs[input] = row_values(block, tensors.inputs[input], row, scratch)), ...);
  }
  template <size_t... output>
  ULPSCOPE_DEVICE void fill_outputs(int64_t row, RowCall<float>& call, std::index_sequence<output...>) const {
    ((call.outputs[output] = tensors.outputs[output].values + row * tensors.outputs[output].stride), ...);
  }
};

}  // namespace ulpscope::device
