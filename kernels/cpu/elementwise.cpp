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
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cpu {
namespace {

constexpr int kMaxInputs = 4;
// Four inputs of this many FP32 values are 16 KiB.
constexpr int64_t kElementsAtOnce = 1024;
// Below this many elements moving them takes no parallel region: a thread moves twice as many in a microsecond as it computes.
constexpr int64_t kParallelMoves = 2 * kParallelElements;

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
    alignas(64) float buffers[kMaxInputs][kElementsAtOnce];
    alignas(64) float wide[kStatisticsBlock];
    float* result = out.place(begin) != nullptr ? out.place(begin) : wide;
    for (int64_t at = 0; at < n; at += kElementsAtOnce) {
      const int64_t count = std::min(kElementsAtOnce, n - at);
      for (int i = 0; i < inputs; ++i) pointers[i] = readers[i].read(begin + at, count, buffers[i]);
      kernel(*call.attributes, pointers, result + at, count);
    }
    out.put(begin, result, n);
  });
  out.finish();
}

// copy and cast: no arithmetic, so values go from where they were widened, or lie, to where they are rounded.
void move(Context& context, const OpCall& call) {
  const TensorView& view = call.outputs[0];
  if (!is_float(view.dtype)) return run_plain(call);
  const Reader reader(call.inputs[0], view);
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelMoves, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, out.size() - begin);
    alignas(64) float wide[kStatisticsBlock];
    out.put(begin, reader.read(begin, n, out.place(begin) != nullptr ? out.place(begin) : wide), n);
  });
  out.finish();
}

// What is dropped depends on an element's logical index: where the output lies in another order, as channels-last does, the factors
// are made first and read in that order.
void dropout(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &view = call.outputs[0];
  const Dropout rule(*call.attributes);
  const int64_t blocks = blocks_of(view.size(), kStatisticsBlock);
  const bool parallel = view.size() >= kParallelElements / 8, reordered = !is_contiguous(view);
  const auto size_of = [&](int64_t begin) { return std::min(kStatisticsBlock, view.size() - begin); };
  const Scratch scratch(context.allocator, reordered ? bytes_of(view.size()) : 0);
  TensorView factors = contiguous(view);
  factors.data = scratch.as<void>();
  factors.dtype = DType::f32;
  if (reordered) {
    parallel_for(context, blocks, parallel, [&](int64_t block) {
      const int64_t begin = block * kStatisticsBlock;
      rule.factors(static_cast<uint64_t>(begin), size_of(begin), scratch.as<float>() + begin);
    });
  }
  const Reader reader(x, view), factor_reader = reordered ? Reader(factors, view) : Reader();
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks, parallel, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = size_of(begin);
    alignas(64) float buffer[kStatisticsBlock], wide[kStatisticsBlock], made[kStatisticsBlock];
    if (!reordered) rule.factors(static_cast<uint64_t>(begin), n, made);
    const float *values = reader.read(begin, n, buffer), *factor = reordered ? factor_reader.read(begin, n, made) : made;
    float* result = out.place(begin) != nullptr ? out.place(begin) : wide;
    for (int64_t i = 0; i < n; ++i) result[i] = values[i] * factor[i];
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
  for (NamedKernel& kernel : kernels)
    if (kernel.op == "copy" || kernel.op == "cast") kernel.run = move;
  kernels.push_back({"dropout", dropout});
  return kernels;
}

}  // namespace ulpscope::cpu
