// FP8: tensors are quantized in two passes, by blocks, and their product is the FP32 one of their values, scaled back.
#include "ulpscope/kernels/quantization.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/product.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cpu {
namespace {

// The largest magnitude, NaN left out. Bits of magnitudes order as they do, and integers make a loop that compilers vectorise.
uint32_t largest_magnitude(const float* values, int64_t n) {
  constexpr uint32_t kInfinity = 0x7F800000;
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    largest = std::max(largest, magnitude > kInfinity ? 0 : magnitude);
  }
  return largest;
}

void quantize(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &view = call.outputs[0];
  const Reader reader(x, view);
  const int64_t size = view.size(), blocks = blocks_of(size, kStatisticsBlock);
  const bool parallel = size >= kParallelElements;
  const auto read = [&](int64_t block, float* buffer) {
    const int64_t begin = block * kStatisticsBlock;
    return reader.read(begin, std::min(kStatisticsBlock, size - begin), buffer);
  };
  std::atomic<uint32_t> largest = 0;
  parallel_for(context, blocks, parallel, [&](int64_t block) {
    alignas(64) float buffer[kStatisticsBlock];
    const uint32_t of_block = largest_magnitude(read(block, buffer), std::min(kStatisticsBlock, size - block * kStatisticsBlock));
    uint32_t before = largest.load(std::memory_order_relaxed);
    while (before < of_block && !largest.compare_exchange_weak(before, of_block, std::memory_order_relaxed)) {
    }
  });
  const float amax = std::bit_cast<float>(largest.load());
  const float scale = call.inputs.size() > 1 ? *call.inputs[1].as<const float>()
                                             : QuantizationScale(*info(view.dtype).format, *call.attributes).of(amax, 1.0f);
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks, parallel, [&](int64_t block) {
    alignas(64) float buffer[kStatisticsBlock], scaled[kStatisticsBlock];
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, size - begin);
    const float* values = read(block, buffer);
    for (int64_t i = 0; i < n; ++i) scaled[i] = values[i] * scale;
    out.put(begin, scaled, n);
  });
  out.finish();
  if (OutputRecord* record = wanted_record(call, 0)) record->quantization_scale = scale;
  const float scalars[] = {scale, 1.0f / scale, amax};
  for (int slot = 1; slot <= 3; ++slot) store_output(call, slot, &scalars[slot - 1]);
}

void scaled_matmul(Context& context, const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  if (out.size() == 0 || k == 0) return run_plain(call);
  const bool with_bias = call.inputs.size() > 4;
  const Scratch bias(context.allocator, bytes_of(with_bias ? n : 0)), product(context.allocator, bytes_of(m * n));
  if (with_bias) widen_run(call.inputs[4].data, call.inputs[4].dtype, 0, call.inputs[4].strides[0], n, bias.as<float>());
  TensorView wide = contiguous(out);
  wide.data = product.as<void>();
  wide.dtype = DType::f32;
  OpCall inner = call;
  inner.op = "matmul";
  inner.inputs = call.inputs.first(2);
  inner.outputs = {&wide, 1};
  inner.records = {};
  const auto matrix = [](const TensorView& view) {
    return Matrix(view.data, view.dtype, view.shape[0], view.shape[1], view.strides[0], view.strides[1]);
  };
  multiply(context, inner, matrix(a), matrix(b), nullptr);
  const float scale_a = *call.inputs[2].as<const float>(), scale_b = *call.inputs[3].as<const float>();
  const int64_t rows = BlockOutput::rows_of_piece(n, 4);
  BlockOutput result(context, call, 0, rows * n);
  parallel_for(context, blocks_of(m, rows), m * n >= kParallelElements, [&](int64_t piece) {
    const int64_t first = piece * rows, last = std::min(m, first + rows);
    float* values = product.as<float>() + first * n;
    for (int64_t i = 0; i < (last - first) * n; ++i) values[i] = values[i] * scale_a * scale_b;
    if (with_bias) {
      for (int64_t i = 0; i < last - first; ++i)
        for (int64_t j = 0; j < n; ++j) values[i * n + j] += bias.as<float>()[j];
    }
    result.put(first * n, values, (last - first) * n);
  });
  result.finish();
}

}  // namespace

std::vector<NamedKernel> quantization_ops() { return {{"quantize", quantize}, {"scaled_matmul", scaled_matmul}}; }

}  // namespace ulpscope::cpu
