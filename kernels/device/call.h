// From an op call to what kernels are given, and from what they counted to the call's records.
#pragma once

#include <cstdint>
#include <span>

#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/reductions.h"
#include "ulpscope/kernels/device/rows.h"
#include "ulpscope/kernels/device/updates.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope::device {

// The elements of a view in the memory order of `order`, which is dense.
Input input_of(const TensorView& view, const TensorView& order);
// All of them in logical order.
Input input_of(const TensorView& view);
// An input of a call, whose arithmetic may read its subnormals as zero, in the memory order of `order`.
Input input_of(const OpCall& call, size_t input, const TensorView& order);

// The same in an order of its dimensions.
Input input_over(const OpCall& call, size_t input, const DimensionList& order);

// Of an op whose elements come from the same element of every input.
ElementwiseTensors elementwise_tensors(const OpCall& call);

// Where output `slot` is stored if that is as FP32 values in logical order and without another rounding; else nullptr.
float* stored_values(const OpCall& call, int slot);
// Of a row op (rows.h), without its outputs and scratch.
RowTensors row_tensors(const OpCall& call, std::span<const RowOperand> inputs, std::span<const RowOperand> outputs);
Grid grid_of(const RowTensors& tensors);

// Of the reduction of an input over the dimensions in `mask`, likewise.
ReductionTensors reduction_tensors(const OpCall& call, size_t input, unsigned mask);
Grid grid_of(const ReductionTensors& tensors);

// Inputs g, x, means where there are four, and inverse deviations; without its outputs.
WeightGradient weight_gradient_of(const OpCall& call);

// Of a loss over classes.
float smoothing_of(const OpCall& call);

inline constexpr int64_t kMostRowBlocks = 1024;  // more than a GPU runs at once
// Of a block whose threads share so many values.
int threads_for(int64_t values);

// Output `slot` of a call, dense, as kernels store it, and count it where the call has a record of it.
Output output_of(const OpCall& call, int slot);
// Of an update whose operations round to the weight's type, or are FP32: all but what it is counted into. Its states are in the
// slots of those that a rule has, as d is, and its tiles are those of the sums where any output is counted by them.
UpdateTensors update_tensors(const OpCall& call, bool is_stepwise);
// An output that is stored already, with its record; its elements are to be counted in the order of `order`. `rounded_to`: the
// format that they came from, nullptr where their rounding is not known.
Output counted_output(const TensorView& order, const OutputRecord& record, const FloatFormat* rounded_to);

int64_t tiles_of(const Output& output);
// A block for each tile.
Grid grid_of(const Output& output);

// Blocks for what each thread does with `size` elements, one after another.
Grid grid_over(int64_t size);

// The memory of the device, zero at first, into which kernels count an output: OutputCounts and the sums of its tiles.
size_t counts_bytes(const Output& output);
void count_into(Output& output, void* memory);
// From a copy of it.
void fill_in(OutputRecord& record, const Output& output, const void* memory);
void fill_in_integers(OutputRecord& record, int64_t size, uint64_t zeros);
// The logical index of the first element that was stored as NaN or Inf, or -1; from such a copy.
int64_t first_nonfinite(const void* memory);

// How many samples of a tensor of `size` elements a record gets.
int samples_of(const OutputRecord& record, int64_t size);
void fill_in_samples(OutputRecord& record, int64_t size, const void* values);

}  // namespace ulpscope::device
