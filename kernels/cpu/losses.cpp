// Losses over the classes of rows, and means of elementwise terms.
#include <algorithm>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/formula_kernels.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/cpu/row_kernels.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/store.h"
#include "ulpscope/kernels/targets.h"

namespace ulpscope::cpu {
namespace {

// The sum of n values in the order of reduction_order.h; the values are overwritten.
float ordered_sum(float* values, int64_t n) {
  const int64_t blocks = blocks_of(n, kReductionBlock);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kReductionBlock, count = std::min(kReductionBlock, n - first);
    values[block] = block_sum(values + first, count);
  }
  merge_by_tree(values, blocks, [](float a, float b) { return a + b; });
  return values[0];
}

// Logits and targets of both passes. Rows are few or short: what costs is the exponential function.
struct Rows {
  const TensorView& logits;
  int64_t rows, classes;
  Targets targets;
  float smoothing;

  Rows(const OpCall& call, int logits_input)
      : logits(call.inputs[logits_input]),
        rows(logits.shape[0]),
        classes(logits.shape[1]),
        targets(call, call.inputs[logits_input + 1], classes),
        smoothing(static_cast<float>(call.attributes->value_or("label_smoothing", 0))) {}
  bool parallel() const { return rows * classes >= kParallelElements / 16; }
  void read(int64_t row, float* out) const {
    widen_run(logits.data, logits.dtype, row * logits.strides[0], logits.strides[1], classes, out);
  }
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
    terms[row] = 0;
    if (in.targets[row] == Targets::kIgnored) return;
    const float logit = values[in.targets[row]];
    if (in.smoothing == 0) {
      terms[row] = sums[row] - logit;
      return;
    }
    const float mean = ordered_sum(values, in.classes) / static_cast<float>(in.classes);
    terms[row] = sums[row] - (1.0f - in.smoothing) * logit - in.smoothing * mean;
  });
  const float loss = ordered_sum(terms, in.rows) / static_cast<float>(in.targets.counted());
  store_output(call, 0, &loss);
  store_output(call, 1, sums);
}

void cross_entropy_backward(Context& context, const OpCall& call) {
  const TensorView& out_view = call.outputs[0];
  if (out_view.size() == 0 || !is_contiguous(out_view)) return run_plain(call);
  const Rows in(call, 1);
  float g = 0;
  widen_run(call.inputs[0].data, call.inputs[0].dtype, 0, 1, 1, &g);
  const float factor = g / static_cast<float>(in.targets.counted());
  const float share = in.smoothing / static_cast<float>(in.classes);
  const TensorView& sums = call.inputs[3];
  const Scratch wide(context.allocator, bytes_of(in.rows * in.classes));
  parallel_for(context, in.rows, in.parallel(), [&](int64_t row) {
    float* values = wide.as<float>() + row * in.classes;
    if (in.targets[row] == Targets::kIgnored) {
      std::fill_n(values, in.classes, 0.0f);
      return;
    }
    in.read(row, values);
    const float sum = sums.as<const float>()[row * sums.strides[0]];
    exponentials(values, sum, in.classes, values);
    const int64_t target = in.targets[row];
    for (int64_t i = 0; i < in.classes; ++i) values[i] = (values[i] - (i == target ? 1.0f - in.smoothing : 0.0f) - share) * factor;
  });
  store_output(call, 0, wide.as<float>());
}

// `x`: log-probabilities.
void nll(Context& context, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  if (x.size() == 0) return run_plain(call);
  const Targets targets(call, call.inputs[1], x.shape[1]);
  const Scratch terms(context.allocator, bytes_of(x.shape[0]));
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    float value = 0;
    if (targets[row] != Targets::kIgnored)
      widen_run(x.data, x.dtype, row * x.strides[0] + targets[row] * x.strides[1], 1, 1, &value);
    terms.as<float>()[row] = targets[row] == Targets::kIgnored ? 0.0f : -value;
  }
  const float loss = ordered_sum(terms.as<float>(), x.shape[0]) / static_cast<float>(targets.counted());
  store_output(call, 0, &loss);
}

void nll_backward(Context& context, const OpCall& call) {
  const TensorView& out_view = call.outputs[0];
  if (out_view.size() == 0 || !is_contiguous(out_view)) return run_plain(call);
  const int64_t rows = out_view.shape[0], classes = out_view.shape[1];
  const Targets targets(call, call.inputs[1], classes);
  float g = 0;
  widen_run(call.inputs[0].data, call.inputs[0].dtype, 0, 1, 1, &g);
  const float gradient = -g / static_cast<float>(targets.counted());
  const int64_t of_piece = BlockOutput::rows_of_piece(classes, 4), piece = of_piece * classes;
  BlockOutput out(context, call, 0, piece);
  const bool parallel = out.size() >= kParallelElements;
  const ThreadTiles tiles(context, out, parallel ? context.threads : 1, piece);
  parallel_for(context, blocks_of(rows, of_piece), parallel, [&](int64_t i) {
    const int64_t first = i * of_piece, count = std::min(of_piece, rows - first);
    float* values = tiles.at(parallel ? omp_get_thread_num() : 0, first * classes);
    std::fill_n(values, count * classes, 0.0f);
    for (int64_t row = 0; row < count; ++row) {
      const int64_t target = targets[first + row];
      if (target != Targets::kIgnored) values[row * classes + target] = gradient;
    }
    out.put(first * classes, values, count * classes);
  });
  out.finish();
}

// The mean of the formula with this place in the list of losses' terms.
void mean_of_terms(Context& context, const OpCall& call, int index) {
  const TensorView& prediction = call.inputs[0];
  const int64_t size = prediction.size();
  if (size == 0 || !is_dense(prediction)) return run_plain(call);
  const Reader p(prediction, prediction), t(call.inputs[1], prediction);
  const FormulaKernel kernel = loss_term_kernel(index);
  const int64_t blocks = blocks_of(size, kReductionBlock);
  const Scratch parts(context.allocator, bytes_of(blocks));
  parallel_for(context, blocks, size >= kParallelElements, [&](int64_t block) {
    const int64_t first = block * kReductionBlock, n = std::min(kReductionBlock, size - first);
    alignas(64) float buffers[2][kReductionBlock], terms[kReductionBlock];
    const float* inputs[] = {p.read(first, n, buffers[0]), t.read(first, n, buffers[1])};
    kernel(*call.attributes, inputs, terms, n);
    parts.as<float>()[block] = block_sum(terms, n);
  });
  merge_by_tree(parts.as<float>(), blocks, [](float a, float b) { return a + b; });
  const float loss = parts.as<float>()[0] / static_cast<float>(size);
  store_output(call, 0, &loss);
}

template <class... F>
void add_losses(lanes::FormulaList<F...>, std::vector<NamedKernel>& kernels) {
  int next = 0;
  const auto kernel = [&] {
    return [index = next++](Context& context, const OpCall& call) { mean_of_terms(context, call, index); };
  };
  (kernels.push_back({F::kName, kernel()}), ...);
}

}  // namespace

std::vector<NamedKernel> loss_ops() {
  std::vector<NamedKernel> kernels{{"cross_entropy", cross_entropy},
                                   {"cross_entropy_backward", cross_entropy_backward},
                                   {"nll", nll},
                                   {"nll_backward", nll_backward}};
  add_losses(lanes::LossTerms{}, kernels);
  return kernels;
}

}  // namespace ulpscope::cpu
