#include "ulpscope/kernels/cpu/reductions.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/reference/plain.h"
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

// Any layout: the terms of each sum are read block by block.
void sum_each(Context& context, const TensorView& view, unsigned mask, float* sums) {
  DimensionList kept;
  for (int i = 0; i < view.rank; ++i) {
    if (((mask >> i) & 1) == 0) kept.dimensions[kept.count++] = i;
  }
  const TensorView kept_view = with_dimensions(view, kept);
  const TensorView terms = with_dimensions(view, dimensions_in_memory_order(view, mask));
  const int64_t n = terms.size(), blocks = blocks_of(n, kReductionBlock), count = kept_view.size();
  const Scratch parts(context.allocator, bytes_of(count * blocks));
  const auto size = static_cast<int64_t>(info(view.dtype).size);
  parallel_for(context, count * blocks, n * count >= kParallelElements, [&](int64_t i) {
    const int64_t sum = i / blocks, block = i % blocks;
    TensorView start = terms;
    start.data = view.as<char>() + offset_of(kept_view, sum) * size;
    const int64_t first = block * kReductionBlock, values = std::min(kReductionBlock, n - first);
    alignas(64) float buffer[kReductionBlock];
    parts.as<float>()[i] = block_sum(Reader(start, contiguous(start)).read(first, values, buffer), values);
  });
  for (int64_t i = 0; i < count; ++i) {
    float* part = parts.as<float>() + i * blocks;
    merge_by_tree(part, blocks, [](float a, float b) { return a + b; });
    sums[i] = part[0];
  }
}

template <bool mean>
void sum(Context& context, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const auto mask = static_cast<unsigned>(call.attribute("dims"));
  const int64_t size = call.outputs[0].size();
  if (x.size() == 0 || size == 0 || !is_float(x.dtype) || !is_contiguous(call.outputs[0])) return run_plain(call);
  const Scratch sums(context.allocator, bytes_of(size));
  sum_rows(context, x, mask, sums.as<float>());
  if (mean) {
    const auto count = static_cast<float>(x.size() / size);
    for (int64_t i = 0; i < size; ++i) sums.as<float>()[i] /= count;
  }
  store_output(call, 0, sums.as<float>());
}

// Squares in FP64, each input by itself; the inputs' sums are added in their order.
void gradient_norm(Context& context, const OpCall& call) {
  const auto& kernels = reduction_kernels();
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
        std::array<double, kSumLanes> lanes{};
        kernels.add_squares(reader.read(first, n, buffer), n, lanes.data());
        add_lanes(lanes.data());
        sums[block] = lanes[0];
      }
    });
    merge_by_tree(sums, blocks, [](double a, double b) { return a + b; });
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
    sum_each(context, view, mask, sums);
  }
}

std::vector<NamedKernel> reduction_ops() { return {{"sum", sum<false>}, {"mean", sum<true>}, {"gradient_norm", gradient_norm}}; }

}  // namespace ulpscope::cpu
