#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/cpu/row_kernels.h"
#include "ulpscope/kernels/reference/plain.h"

namespace ulpscope::cpu {
namespace {

// The sum of n values in the order of reduction_order.h; the values are overwritten.
float ordered_sum(float* values, int64_t n) {
  const auto& kernels = reduction_kernels();
  const int64_t blocks = blocks_of(n, kReductionBlock);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kReductionBlock, count = std::min(kReductionBlock, n - first);
    alignas(64) float lanes[kSumLanes] = {};
    const LaneForm form(RowSums{values + first, 1, count, 1, kSumLanes});
    for (int part = 0; part < form.parts(); ++part) kernels.add(form.part(part), lanes);
    form.add_lanes(lanes);
    values[block] = lanes[0];
  }
  merge_by_tree(values, blocks, [](float a, float b) { return a + b; });
  return values[0];
}

void check_targets(const OpCall& call, const TensorView& targets, int64_t classes) {
  const auto* target = targets.as<const int64_t>();
  for (int64_t row = 0; row < targets.shape[0]; ++row) {
    if (target[row * targets.strides[0]] >= 0 && target[row * targets.strides[0]] < classes) continue;
    throw failed_error("{}: target {} of row {} is not one of {} classes", call.op, target[row * targets.strides[0]], row, classes);
  }
}

// Logits and targets of both passes. Rows are few or short: what costs is the exponential function.
struct Rows {
  const TensorView &logits, &targets;
  int64_t rows, classes;

  Rows(const OpCall& call, int logits_input)
      : logits(call.inputs[logits_input]), targets(call.inputs[logits_input + 1]), rows(logits.shape[0]), classes(logits.shape[1]) {
    check_targets(call, targets, classes);
  }
  bool parallel() const { return rows * classes >= kParallelElements / 16; }
  void read(int64_t row, float* out) const {
    widen_run(logits.data, logits.dtype, row * logits.strides[0], logits.strides[1], classes, out);
  }
  int64_t target(int64_t row) const { return targets.as<const int64_t>()[row * targets.strides[0]]; }
};

void cross_entropy(Context& context, const OpCall& call) {
  if (call.inputs[0].size() == 0) return run_plain(call);
  const Rows in(call, 0);
  const Scratch results(context.allocator, bytes_of(2 * in.rows));
  float *sums = results.as<float>(), *terms = sums + in.rows;
  const ThreadScratch buffers(context.allocator, context.threads, bytes_of(in.classes));
  parallel_for(context, in.rows, in.parallel(), [&](int64_t row) {
    float* values = buffers.of(in.parallel() ? omp_get_thread_num() : 0);
    in.read(row, values);
    sums[row] = log_of_softmax_sum(values, in.classes);
    terms[row] = sums[row] - values[in.target(row)];
  });
  const float loss = ordered_sum(terms, in.rows) / static_cast<float>(in.rows);
  store_output(call, 0, &loss);
  store_output(call, 1, sums);
}

void cross_entropy_backward(Context& context, const OpCall& call) {
  const TensorView& out_view = call.outputs[0];
  if (out_view.size() == 0 || !is_contiguous(out_view)) return run_plain(call);
  const Rows in(call, 1);
  float g = 0;
  widen_run(call.inputs[0].data, call.inputs[0].dtype, 0, 1, 1, &g);
  const float factor = g / static_cast<float>(in.rows);
  const TensorView& sums = call.inputs[3];
  const Scratch wide(context.allocator, bytes_of(in.rows * in.classes));
  parallel_for(context, in.rows, in.parallel(), [&](int64_t row) {
    float* values = wide.as<float>() + row * in.classes;
    in.read(row, values);
    const float sum = sums.as<const float>()[row * sums.strides[0]];
    exponentials(values, sum, in.classes, values);
    for (int64_t i = 0; i < in.classes; ++i) values[i] = (values[i] - (i == in.target(row) ? 1.0f : 0.0f)) * factor;
  });
  store_output(call, 0, wide.as<float>());
}

void mse(Context& context, const OpCall& call) {
  const TensorView& prediction = call.inputs[0];
  const int64_t size = prediction.size();
  if (size == 0 || !is_dense(prediction)) return run_plain(call);
  const Reader p(prediction, prediction), t(call.inputs[1], prediction);
  const int64_t blocks = blocks_of(size, kReductionBlock);
  const Scratch parts(context.allocator, bytes_of(blocks));
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks, size >= kParallelElements, [&](int64_t block) {
    const int64_t first = block * kReductionBlock, n = std::min(kReductionBlock, size - first);
    alignas(64) float p_buffer[kReductionBlock], t_buffer[kReductionBlock];
    alignas(64) float lanes[kSumLanes] = {};
    const LaneForm form(RowSums{p.read(first, n, p_buffer), 1, n, 1, kSumLanes});
    const float* target = t.read(first, n, t_buffer);
    for (int part = 0; part < form.parts(); ++part) {
      kernels.add_squared_differences(form.part(part), target + form.offset(part), lanes);
    }
    form.add_lanes(lanes);
    parts.as<float>()[block] = lanes[0];
  });
  merge_by_tree(parts.as<float>(), blocks, [](float a, float b) { return a + b; });
  const float loss = parts.as<float>()[0] / static_cast<float>(size);
  store_output(call, 0, &loss);
}

void mse_backward(Context& context, const OpCall& call) {
  const TensorView& view = call.outputs[0];
  float g = 0;
  widen_run(call.inputs[0].data, call.inputs[0].dtype, 0, 1, 1, &g);
  const float factor = 2.0f * g / static_cast<float>(call.inputs[1].size());
  const Reader p(call.inputs[1], view), t(call.inputs[2], view);
  BlockOutput out(context, call, 0);
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, out.size() - begin);
    alignas(64) float p_buffer[kStatisticsBlock], t_buffer[kStatisticsBlock];
    const float *prediction = p.read(begin, n, p_buffer), *target = t.read(begin, n, t_buffer);
    float* to = out.place(begin) != nullptr ? out.place(begin) : p_buffer;
    for (int64_t i = 0; i < n; ++i) to[i] = (prediction[i] - target[i]) * factor;
    out.put(begin, to, n);
  });
  out.finish();
}

}  // namespace

std::vector<NamedKernel> loss_ops() {
  return {{"cross_entropy", cross_entropy},
          {"cross_entropy_backward", cross_entropy_backward},
          {"mse", mse},
          {"mse_backward", mse_backward}};
}

}  // namespace ulpscope::cpu
