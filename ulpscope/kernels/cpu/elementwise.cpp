// Elementwise ops: blocks of the output in its memory order; inputs are read as FP32 a chunk at a time, so that everything between
// reading and rounding stays in L1.
#include <algorithm>
#include <array>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/formula_kernels.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/dropout.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/reference/plain.h"

namespace ulpscope::cpu {
namespace {

constexpr int kMaxInputs = 4;
// Four inputs of this many FP32 values are 16 KiB.
constexpr int64_t kChunk = 1024;

void elementwise(Context& context, const OpCall& call, int index, int inputs) {
  const TensorView& view = call.outputs[0];
  if (!is_float(view.dtype)) return run_plain(call);
  const FormulaKernel kernel = formula_kernel(index);
  std::array<Reader, kMaxInputs> readers;
  bool direct = view.dtype == DType::f32;
  for (int i = 0; i < inputs; ++i) {
    readers[i] = Reader(call.inputs[i], view);
    direct = direct && readers[i].direct();
  }
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, out.size() - begin);
    const float* pointers[kMaxInputs] = {};
    if (direct) {
      for (int i = 0; i < inputs; ++i) pointers[i] = readers[i].read(begin, n, nullptr);
      kernel(*call.attributes, pointers, out.place(begin), n);
      return out.put(begin, out.place(begin), n);
    }
    alignas(64) float buffers[kMaxInputs][kChunk];
    alignas(64) float wide[kStatisticsBlock];
    float* result = out.place(begin) != nullptr ? out.place(begin) : wide;
    for (int64_t at = 0; at < n; at += kChunk) {
      const int64_t count = std::min(kChunk, n - at);
      for (int i = 0; i < inputs; ++i) pointers[i] = readers[i].read(begin + at, count, buffers[i]);
      kernel(*call.attributes, pointers, result + at, count);
    }
    out.put(begin, result, n);
  });
  out.finish();
}

// What is dropped depends on an element's logical index.
void dropout(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &view = call.outputs[0];
  if (!is_contiguous(view)) return run_plain(call);
  const Dropout rule(*call.attributes);
  const Reader reader(x, view);
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements / 8, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, out.size() - begin);
    alignas(64) float buffer[kStatisticsBlock], wide[kStatisticsBlock];
    float* result = out.place(begin) != nullptr ? out.place(begin) : wide;
    rule.apply(reader.read(begin, n, buffer), static_cast<uint64_t>(begin), n, result);
    out.put(begin, result, n);
  });
  out.finish();
}

template <class... F>
std::vector<NamedKernel> kernels_of(lanes::FormulaList<F...>) {
  static_assert(((F::kInputs <= kMaxInputs) && ...));
  int next = 0;
  const auto kernel = [&](int inputs) {
    return [index = next++, inputs](Context& context, const OpCall& call) { elementwise(context, call, index, inputs); };
  };
  return {NamedKernel{F::kName, kernel(F::kInputs)}...};  // evaluated from left to right
}

}  // namespace

std::vector<NamedKernel> elementwise_ops() {
  std::vector<NamedKernel> kernels = kernels_of(lanes::Formulas{});
  kernels.push_back({"dropout", dropout});
  return kernels;
}

}  // namespace ulpscope::cpu
