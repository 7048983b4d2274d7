#include "ulpscope/kernels/device/call.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/output_rounding.h"

namespace ulpscope::device {
namespace {

constexpr int kUncountedTile = 2048;  // elements, where no order of sums asks for more

// The format that values lose bits to as they are stored.
const FloatFormat* narrower_format(const TensorView& view) {
  const FloatFormat* format = info(view.dtype).format;
  return view.data != nullptr && is_narrow(*format) ? format : nullptr;
}

Output output_of(const TensorView& view, const OutputRecord* record, const FloatFormat* rounded_to) {
  const StatisticsLevel level = record == nullptr ? StatisticsLevel::none : record->wanted;
  return {.data = view.data,
          .dtype = view.dtype,
          .size = view.size(),
          .tile = level == StatisticsLevel::values ? Tile::kSize : kUncountedTile,
          .level = level,
          .counts_rounding = rounded_to != nullptr,
          .thresholds = RoundingThresholds(rounded_to != nullptr ? *rounded_to : binary32, record == nullptr ? 1 : record->scale),
          .is_special = false,
          .rounding = {},
          .random = {},
          .is_stepwise = false,
          .stepwise = {},
          .logical = elements_in_order(contiguous(view), view),
          .counts = nullptr,
          .sums = nullptr};
}

void check_terms(const OpCall& call, int64_t terms) {
  if (terms > kMostTerms) throw usage_error("{}: a sum of {} terms; a device adds at most {}", call.op, terms, kMostTerms);
}

double value_of_magnitude(uint64_t magnitude) { return std::bit_cast<float>(static_cast<uint32_t>(magnitude)); }

}  // namespace

int threads_for(int64_t values) {
  const int64_t warps = (values + kWarpThreads - 1) / kWarpThreads;
  return static_cast<int>(std::clamp<int64_t>(warps * kWarpThreads, kWarpThreads, kMostThreads));
}

Input input_of(const TensorView& view, const TensorView& order) {
  const ElementOrder elements = elements_in_order(view, order);
  return {view.data, view.dtype, elements.is_linear(), false, elements};
}

Input input_of(const TensorView& view) { return input_of(view, contiguous(view)); }

Input input_of(const OpCall& call, size_t input, const TensorView& order) {
  Input of_call = input_of(call.inputs[input], order);
  of_call.flushes = flushes_input(call, call.inputs[input].dtype);
  return of_call;
}

Output output_of(const OpCall& call, int slot) {
  const TensorView& view = call.outputs[static_cast<size_t>(slot)];
  if (!is_float(view.dtype) || view.dtype == DType::f64)
    throw usage_error("{}: no output of a device is of type {}", call.op, info(view.dtype).name);
  const OutputRecord* record = call.records.empty() ? nullptr : call.records[static_cast<size_t>(slot)];
  Output output = output_of(view, record, narrower_format(view));
  if (view.data == nullptr) {
    output.dtype = DType::f32;
    return output;
  }
  const OutputRounding rounding(call, slot, view.dtype);
  // FP32 is what kernels compute in.
  output.is_special = view.dtype == DType::f32 ? rounding.flushes() : is_quantized(view.dtype) || rounding.is_special();
  if (!output.is_special) return output;
  output.counts_rounding = true;
  output.rounding = rounding.counted(record == nullptr ? 1 : record->scale);
  output.random = rounding.random();
  return output;
}

Output counted_output(const TensorView& order, const OutputRecord& record, const FloatFormat* rounded_to) {
  TensorView view = order;
  view.data = nullptr;
  view.dtype = DType::f32;
  return output_of(view, &record, rounded_to);
}

Input input_over(const OpCall& call, size_t input, const DimensionList& order) {
  const TensorView& view = call.inputs[input];
  const ElementOrder elements = elements_over(view, order);
  return {view.data, view.dtype, elements.is_linear(), flushes_input(call, view.dtype), elements};
}

ElementwiseTensors elementwise_tensors(const OpCall& call) {
  ElementwiseTensors tensors{{}, output_of(call, 0)};
  for (size_t i = 0; i < call.inputs.size(); ++i) tensors.inputs[i] = input_of(call, i, call.outputs[0]);
  return tensors;
}

float* stored_values(const OpCall& call, int slot) {
  const TensorView& view = call.outputs[static_cast<size_t>(slot)];
  return view.dtype == DType::f32 && is_contiguous(view) && !output_of(call, slot).is_special ? view.as<float>() : nullptr;
}

RowTensors row_tensors(const OpCall& call, std::span<const RowOperand> inputs, std::span<const RowOperand> outputs) {
  RowTensors tensors{};
  tensors.n = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != RowOperand::row) continue;
    const TensorView& view = call.inputs[i];
    tensors.n = view.rank > 0 ? view.shape[view.rank - 1] : 1;
    tensors.rows = tensors.n > 0 ? view.size() / tensors.n : 0;
  }
  const int64_t n = tensors.n;
  check_terms(call, n);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& view = call.inputs[i];
    RowInput& operand = tensors.inputs[i];
    operand.input = input_of(view);
    operand.input.flushes = flushes_input(call, view.dtype);
    operand.stride = inputs[i].stride(n);
    operand.count = inputs[i] == RowOperand::vector ? n : operand.stride;
    if (view.dtype == DType::f32 && is_contiguous(view) && !operand.input.flushes) {
      operand.values = view.as<const float>();
    } else {
      tensors.scratch_of_block += operand.count;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) tensors.outputs[i] = {nullptr, outputs[i].stride(n)};
  return tensors;
}

Grid grid_of(const RowTensors& tensors) { return {std::min(tensors.rows, kMostRowBlocks), threads_for(tensors.n)}; }

ReductionTensors reduction_tensors(const OpCall& call, size_t input, unsigned mask) {
  const TensorView& view = call.inputs[input];
  const DimensionList reduced = dimensions_in_memory_order(view, mask);
  ReductionTensors tensors{};
  tensors.input = input_of(view);
  tensors.input.flushes = flushes_input(call, view.dtype);
  tensors.kept = elements_over(view, dimensions_in_memory_order(contiguous(view), ~mask));
  tensors.reduced = elements_over(view, reduced);
  tensors.outputs = tensors.terms = 1;
  for (int i = 0; i < view.rank; ++i)
    if ((mask >> i & 1) == 0) tensors.outputs *= view.shape[i];
  for (int i = 0; i < reduced.count; ++i) tensors.terms *= view.shape[reduced.dimensions[i]];
  check_terms(call, tensors.terms);
  return tensors;
}

Grid grid_of(const ReductionTensors& tensors) { return {std::min(tensors.outputs, kMostRowBlocks), threads_for(tensors.terms)}; }

WeightGradient weight_gradient_of(const OpCall& call) {
  const TensorView &g = call.inputs[0], &x = call.inputs[1];
  const size_t inverse = call.inputs.size() - 1;
  const auto in_logical_order = [&](size_t input) { return input_of(call, input, contiguous(call.inputs[input])); };
  WeightGradient gradient{};
  gradient.n = x.shape[x.rank - 1];
  gradient.rows = gradient.n > 0 ? x.size() / gradient.n : 0;
  gradient.gradient = in_logical_order(0);
  gradient.x = in_logical_order(1);
  gradient.mean = in_logical_order(2);
  gradient.inverse = in_logical_order(inverse);
  gradient.has_mean = inverse == 3;
  gradient.bias_rows = elements_over(g, dimensions_in_memory_order(g, (1u << (g.rank - 1)) - 1));
  check_terms(call, gradient.rows);
  return gradient;
}

float smoothing_of(const OpCall& call) { return static_cast<float>(call.attributes->value_or("label_smoothing", 0)); }

int64_t tiles_of(const Output& output) { return (output.size + output.tile - 1) / output.tile; }

Grid grid_of(const Output& output) { return {tiles_of(output), threads_for(std::min<int64_t>(output.tile, output.size))}; }

Grid grid_over(int64_t size) { return {(size + Tile::kSize - 1) / Tile::kSize, threads_for(size)}; }

size_t counts_bytes(const Output& output) {
  return sizeof(OutputCounts) + static_cast<size_t>(tiles_of(output)) * sizeof(BlockSums);
}

void count_into(Output& output, void* memory) {
  output.counts = static_cast<OutputCounts*>(memory);
  output.sums = reinterpret_cast<BlockSums*>(output.counts + 1);
}

void fill_in(OutputRecord& record, const Output& output, const void* memory) {
  const auto& counts = *static_cast<const OutputCounts*>(memory);
  if (record.fingerprint.wanted && output.data != nullptr) record.fingerprint = {true, true, counts.fingerprint};
  if (output.level == StatisticsLevel::none) return;
  record.known = output.level;
  record.before_rounding = record.rounding_known = output.counts_rounding;
  TensorStatistics& statistics = record.statistics;
  statistics = {};
  statistics.count = static_cast<uint64_t>(output.size);
  statistics.nan = counts.nan;
  statistics.positive_infinity = counts.positive_infinity;
  statistics.negative_infinity = counts.negative_infinity;
  statistics.zeros = counts.zeros;
  record.rounding = {.flushed = counts.flushed,
                     .subnormal = counts.subnormal,
                     .inexact_subnormal = counts.inexact_subnormal,
                     .overflowed = counts.overflowed,
                     .rescued = counts.rescued,
                     .saturated = counts.saturated};
  if (output.level != StatisticsLevel::values) return;
  statistics.negatives = counts.negatives;
  if (counts.largest > 0) {
    statistics.largest = value_of_magnitude(counts.largest);
    statistics.smallest = value_of_magnitude(~counts.smallest_complement);
  }
  std::copy(std::begin(counts.exponents), std::end(counts.exponents), statistics.histogram.bins.begin());
  const auto* of_tiles = reinterpret_cast<const BlockSums*>(&counts + 1);
  std::vector<BlockSums> sums(of_tiles, of_tiles + tiles_of(output));
  merge_by_tree(sums.data(), tiles_of(output), [](const BlockSums& a, const BlockSums& b) {
    return BlockSums{a.sum + b.sum, a.sum_of_squares + b.sum_of_squares};
  });
  if (sums.empty()) return;
  statistics.sum = sums[0].sum;
  statistics.sum_of_squares = sums[0].sum_of_squares;
}

void fill_in_integers(OutputRecord& record, int64_t size, uint64_t zeros) {
  record.known = record.wanted;
  record.before_rounding = record.rounding_known = false;
  record.statistics = {};
  record.rounding = {};
  record.statistics.count = static_cast<uint64_t>(size);
  record.statistics.zeros = zeros;
}

int64_t first_nonfinite(const void* memory) {
  return static_cast<int64_t>(~static_cast<const OutputCounts*>(memory)->first_nonfinite_complement);
}

int samples_of(const OutputRecord& record, int64_t size) {
  return static_cast<int>(std::min<int64_t>({record.samples_wanted, OutputRecord::kMaxSamples, size}));
}

void fill_in_samples(OutputRecord& record, int64_t size, const void* values) {
  record.samples = samples_of(record, size);
  std::copy_n(static_cast<const double*>(values), record.samples, record.sample_values.begin());
  for (int i = 0; i < record.samples; ++i) record.sample_elements[static_cast<size_t>(i)] = i * size / record.samples;
}

}  // namespace ulpscope::device
