#include "ulpscope/kernels/cpu/reductions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::cpu {

bool RowsOfChannels::fits(const TensorView& view, unsigned mask) {
  if (!is_dense(view)) return false;
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (((mask >> i) & 1) != 0 || view.shape[i] == 1) continue;
    if (view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

RowsOfChannels::RowsOfChannels(const TensorView& tensor, unsigned mask) : view(&tensor), channels(1) {
  for (int i = 0; i < tensor.rank; ++i) channels *= ((mask >> i) & 1) != 0 ? 1 : tensor.shape[i];
  rows = tensor.size() / std::max<int64_t>(channels, 1);
}

RowSums RowsOfChannels::piece(int64_t block, int64_t strip, float* buffer) const {
  const int64_t first = block * kReductionBlock, n = std::min(kReductionBlock, rows - first);
  const int64_t column = strip * kStrip, columns = std::min(kStrip, channels - column);
  const int64_t offset = first * channels + column;
  if (view->dtype == DType::f32) return {view->as<const float>() + offset, channels, n, columns, kSumLanes};
  if (columns == channels) {
    widen_run(view->data, view->dtype, offset, 1, n * columns, buffer);
  } else {
    for (int64_t r = 0; r < n; ++r) widen_run(view->data, view->dtype, offset + r * channels, 1, columns, buffer + r * columns);
  }
  return {buffer, columns, n, columns, kSumLanes};
}

LaneForm::LaneForm(const RowSums& rows) : columns_(rows.columns), whole_(rows) {
  narrow_ = rows.stride == rows.columns && rows.columns <= kNarrow;
  if (!narrow_) return;
  const int64_t whole = rows.rows / kSumLanes, rest = rows.rows % kSumLanes;
  const int64_t columns = rows.columns * kSumLanes;
  whole_ = {rows.x, columns, whole, columns, 1};
  rest_ = {rows.x + whole * columns, columns, rest > 0 ? 1 : 0, rest * rows.columns, 1};
}

const float* LaneForm::repeat(const float* values, float* buffer) const {
  if (!narrow_) return values;
  for (int lane = 0; lane < kSumLanes; ++lane) std::copy_n(values, columns_, buffer + lane * columns_);
  return buffer;
}

void LaneForm::add_lanes(float* sums) const { ulpscope::add_lanes(sums, columns_); }

float block_sum(const float* values, int64_t n) {
  alignas(64) float lanes[kSumLanes] = {};
  const LaneForm form(RowSums{values, 1, n, 1, kSumLanes});
  for (int part = 0; part < form.parts(); ++part) reduction_kernels().add(form.part(part), lanes);
  form.add_lanes(lanes);
  return lanes[0];
}

void add_blocks(float* blocks, int64_t n, int64_t columns) {
  merge_by_tree(
      n,
      [&](int64_t to, int64_t left, int64_t right) {
        const float *a = blocks + left * columns, *b = blocks + right * columns;
        float* sum = blocks + to * columns;
        for (int64_t c = 0; c < columns; ++c) sum[c] = a[c] + b[c];
      },
      [&](int64_t to, int64_t from) { std::copy_n(blocks + from * columns, columns, blocks + to * columns); });
}

namespace {

void sum_channels(Context& context, const RowsOfChannels& shape, float* sums) {
  const bool parallel = shape.rows * shape.channels >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide(context.allocator, slots, shape.view->dtype == DType::f32 ? 0 : bytes_of(RowsOfChannels::kPiece));
  const Scratch blocks(context.allocator, bytes_of(shape.blocks() * shape.channels));
  const auto& kernels = reduction_kernels();
  parallel_for(context, shape.blocks() * shape.strips(), parallel, [&](int64_t i) {
    const int64_t block = i / shape.strips(), strip = i % shape.strips();
    const RowSums rows = shape.piece(block, strip, wide.of(parallel ? omp_get_thread_num() : 0));
    const LaneForm form(rows);
    alignas(64) float lanes[LaneForm::kSums];
    std::fill_n(lanes, kSumLanes * rows.columns, 0.0f);
    for (int part = 0; part < form.parts(); ++part) kernels.add(form.part(part), lanes);
    form.add_lanes(lanes);
    std::copy_n(lanes, rows.columns, blocks.as<float>() + block * shape.channels + strip * RowsOfChannels::kStrip);
  });
  add_blocks(blocks.as<float>(), shape.blocks(), shape.channels);
  std::copy_n(blocks.as<float>(), shape.channels, sums);
}

TensorView with_dimensions(const TensorView& view, const DimensionList& list) {
  TensorView part = view;
  part.rank = list.count;
  for (int i = 0; i < list.count; ++i) {
    part.shape[i] = view.shape[list.dimensions[i]];
    part.strides[i] = view.strides[list.dimensions[i]];
  }
  return part;
}

// Any layout: the terms of each reduction are read block by block. `results` has one for each index of the dimensions outside of
// `mask`: part(i, values, n) of the blocks of terms of result i, merged by the tree.
template <typename T, typename Part, typename Merge>
void reduce_each(Context& context, const TensorView& view, unsigned mask, T* results, Part part, Merge merge) {
  DimensionList kept;
  for (int i = 0; i < view.rank; ++i) {
    if (((mask >> i) & 1) == 0) kept.dimensions[kept.count++] = i;
  }
  const TensorView kept_view = with_dimensions(view, kept);
  const TensorView terms = with_dimensions(view, dimensions_in_memory_order(view, mask));
  const int64_t n = terms.size(), blocks = blocks_of(n, kReductionBlock), count = kept_view.size();
  const Scratch scratch(context.allocator, static_cast<size_t>(count * blocks) * sizeof(T));
  T* parts = scratch.as<T>();
  const auto size = static_cast<int64_t>(info(view.dtype).size);
  parallel_for(context, count * blocks, n * count >= kParallelElements, [&](int64_t i) {
    const int64_t result = i / blocks, block = i % blocks;
    TensorView start = terms;
    start.data = view.as<char>() + offset_of(kept_view, result) * size;
    const int64_t first = block * kReductionBlock, values = std::min(kReductionBlock, n - first);
    alignas(64) float buffer[kReductionBlock];
    parts[i] = part(result, Reader(start, contiguous(start)).read(first, values, buffer), values);
  });
  for (int64_t i = 0; i < count; ++i) {
    merge_by_tree(parts + i * blocks, blocks, merge);
    results[i] = parts[i * blocks];
  }
}

template <typename T>
T sum_of(T a, T b) {
  return a + b;
}

// The sum of the squares of at most kReductionBlock values.
double square_sum(const float* values, int64_t n) {
  std::array<double, kSumLanes> lanes{};
  reduction_kernels().add_squares(values, n, lanes.data());
  add_lanes(lanes.data());
  return lanes[0];
}

// Whether the reduction of input 0 is left to the plain twin.
bool is_plain_reduction(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  for (const TensorView& out : call.outputs) {
    if (out.size() == 0 || !is_contiguous(out)) return true;
  }
  return x.size() == 0 || !is_float(x.dtype);
}

unsigned reduced_dimensions(const OpCall& call) { return static_cast<unsigned>(call.attribute("dims")); }

template <bool mean>
void sum(Context& context, const OpCall& call) {
  if (is_plain_reduction(call)) return run_plain(call);
  const int64_t size = call.outputs[0].size();
  const Scratch sums(context.allocator, bytes_of(size));
  sum_rows(context, call.inputs[0], reduced_dimensions(call), sums.as<float>());
  if (mean) {
    const auto count = static_cast<float>(call.inputs[0].size() / size);
    for (int64_t i = 0; i < size; ++i) sums.as<float>()[i] /= count;
  }
  store_output(call, 0, sums.as<float>());
}

void variance(Context& context, const OpCall& call) {
  if (is_plain_reduction(call)) return run_plain(call);
  const TensorView& x = call.inputs[0];
  const unsigned mask = reduced_dimensions(call);
  const int64_t size = call.outputs[0].size(), count = x.size() / size;
  const Scratch results(context.allocator, bytes_of(2 * size));
  float *variances = results.as<float>(), *means = variances + size;
  sum_rows(context, x, mask, means);
  for (int64_t i = 0; i < size; ++i) means[i] /= static_cast<float>(count);
  const auto squared_deviations = [&](int64_t i, const float* values, int64_t n) {
    alignas(64) float squares[kReductionBlock];
    for (int64_t k = 0; k < n; ++k) squares[k] = (values[k] - means[i]) * (values[k] - means[i]);
    return block_sum(squares, n);
  };
  reduce_each(context, x, mask, variances, squared_deviations, sum_of<float>);
  const auto divisor = static_cast<float>(std::max(0.0, static_cast<double>(count) - call.attribute("correction")));
  for (int64_t i = 0; i < size; ++i) variances[i] /= divisor;
  store_output(call, 0, variances);
  store_output(call, 1, means);
}

// The first of the largest values, or the first NaN.
float larger(float a, float b) { return !(b <= a) && !std::isnan(a) ? b : a; }

void largest(Context& context, const OpCall& call) {
  if (is_plain_reduction(call)) return run_plain(call);
  const TensorView& x = call.inputs[0];
  const unsigned mask = reduced_dimensions(call);
  const int64_t size = call.outputs[0].size();
  const Scratch results(context.allocator, bytes_of(2 * size));
  float *values = results.as<float>(), *counts = values + size;
  const auto largest_of = [](int64_t, const float* block, int64_t n) {
    return std::accumulate(block + 1, block + n, block[0], larger);
  };
  reduce_each(context, x, mask, values, largest_of, larger);
  const Scratch exact(context.allocator, static_cast<size_t>(size) * sizeof(int64_t));
  const auto count = [&](int64_t i, const float* block, int64_t n) { return std::count(block, block + n, values[i]); };
  reduce_each(context, x, mask, exact.as<int64_t>(), count, sum_of<int64_t>);
  for (int64_t i = 0; i < size; ++i) counts[i] = static_cast<float>(exact.as<int64_t>()[i]);
  store_output(call, 0, values);
  store_output(call, 1, counts);
}

void norm(Context& context, const OpCall& call) {
  if (is_plain_reduction(call)) return run_plain(call);
  const int64_t size = call.outputs[0].size();
  const Scratch squares(context.allocator, static_cast<size_t>(size) * sizeof(double)), norms(context.allocator, bytes_of(size));
  const auto of_block = [](int64_t, const float* values, int64_t n) { return square_sum(values, n); };
  reduce_each(context, call.inputs[0], reduced_dimensions(call), squares.as<double>(), of_block, sum_of<double>);
  for (int64_t i = 0; i < size; ++i) norms.as<float>()[i] = static_cast<float>(std::sqrt(squares.as<double>()[i]));
  store_output(call, 0, norms.as<float>());
}

// Squares in FP64, each input by itself; the inputs' sums are added in their order.
void gradient_norm(Context& context, const OpCall& call) {
  double total = 0;
  for (const TensorView& g : call.inputs) {
    if (!is_dense(g)) return run_plain(call);
  }
  for (const TensorView& g : call.inputs) {
    const int64_t size = g.size(), blocks = blocks_of(size, kReductionBlock);
    if (size == 0) continue;
    const Scratch parts(context.allocator, static_cast<size_t>(blocks) * sizeof(double));
    auto* sums = parts.as<double>();
    const Reader reader(g, g);
    // Sixteen blocks make a share of a thread worth having.
    parallel_for(context, blocks_of(blocks, 16), size >= kParallelElements, [&](int64_t share) {
      alignas(64) float buffer[kReductionBlock];
      for (int64_t block = share * 16; block < std::min(blocks, share * 16 + 16); ++block) {
        const int64_t first = block * kReductionBlock, n = std::min(kReductionBlock, size - first);
        sums[block] = square_sum(reader.read(first, n, buffer), n);
      }
    });
    merge_by_tree(sums, blocks, sum_of<double>);
    total += sums[0];
  }
  const auto norm = static_cast<float>(std::sqrt(total));
  store_output(call, 0, &norm);
}

}  // namespace

void sum_rows(Context& context, const TensorView& view, unsigned mask, float* sums) {
  if (RowsOfChannels::fits(view, mask)) {
    sum_channels(context, RowsOfChannels(view, mask), sums);
  } else {
    reduce_each(
        context, view, mask, sums, [](int64_t, const float* values, int64_t n) { return block_sum(values, n); }, sum_of<float>);
  }
}

std::vector<NamedKernel> reduction_ops() {
  return {{"sum", sum<false>}, {"mean", sum<true>}, {"var", variance},
          {"max", largest},    {"norm", norm},      {"gradient_norm", gradient_norm}};
}

}  // namespace ulpscope::cpu
