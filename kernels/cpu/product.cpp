#include "ulpscope/kernels/cpu/product.h"

#include <algorithm>
#include <numeric>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/narrow_product.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/sum_order.h"

namespace ulpscope::cpu {
namespace {

// Multiplications below which calling oneDNN costs more than a plain loop, and below which a second thread costs more than it
// brings.
constexpr int64_t kPlainWork = 512;
constexpr int64_t kSerialWork = 1 << 18;
// FP32 values of a tile of one factor and of the result: 384 KiB of an L2 of 1 MiB, which also holds the other factor.
constexpr int64_t kTileValues = 96 * 1024;

enum class Cut { none, rows, columns, depth };

struct Tiling {
  Cut cut = Cut::none;
  int64_t tile = 0;  // extent of a tile along what is cut; the last may be shorter
  int64_t tiles = 1;
};

int64_t extent_of_cut(Cut cut, int64_t m, int64_t n, int64_t k) { return cut == Cut::rows ? m : cut == Cut::columns ? n : k; }

Tiling choose_tiling(int64_t m, int64_t n, int64_t k, int threads) {
  if (m * n * k < kSerialWork) return {};
  Tiling tiling;
  int64_t multiple = 16, other;
  if (k >= 4 * std::max(m, n) && m * n <= kTileValues) {
    tiling.cut = Cut::depth;
    other = m + n;
  } else if (m >= n) {
    tiling.cut = Cut::rows;
    other = n + k;
    // Whole blocks of statistics in each tile, where the tile is large enough.
    const int64_t rows_of_blocks = kStatisticsBlock / std::gcd(kStatisticsBlock, n);
    if (rows_of_blocks * other <= kTileValues) multiple = std::max(multiple, rows_of_blocks);
  } else {
    tiling.cut = Cut::columns;
    other = m + k;
  }
  const int64_t extent = extent_of_cut(tiling.cut, m, n, k);
  const int64_t largest = std::max(multiple, kTileValues / other / multiple * multiple);
  const int64_t count = blocks_of(blocks_of(extent, largest), threads) * threads;  // an equal number for each thread
  tiling.tile = blocks_of(blocks_of(extent, count), multiple) * multiple;
  tiling.tiles = blocks_of(extent, tiling.tile);
  if (tiling.tiles == 1) return {};
  return tiling;
}

// For the smallest products. The sum runs over k in order.
void plain_product(const float* a, const MatrixLayout& a_layout, const float* b, const MatrixLayout& b_layout, const float* bias,
                   int64_t m, int64_t n, int64_t k, float* c) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a[i * a_layout.row + l * a_layout.column] * b[l * b_layout.row + j * b_layout.column];
      }
      c[i * n + j] = bias != nullptr ? sum + bias[j] : sum;
    }
  }
}

// A factor that every tile needs: in place, or widened once by all threads.
class WholeFactor {
 public:
  WholeFactor(Context& context, const Matrix& matrix, int64_t rows, int64_t columns)
      : layout_(matrix.tile_layout(rows, columns)), scratch_(context.allocator, bytes_of(matrix.tile_values(rows, columns))) {
    values_ = matrix.direct() ? matrix.tile(0, 0, rows, columns, nullptr) : scratch_.as<float>();
    if (matrix.direct()) return;
    const int64_t outer = matrix.outer_extent(), share = std::max<int64_t>(1, blocks_of(outer, 4 * context.threads));
    parallel_for(context, blocks_of(outer, share), rows * columns >= kParallelElements,
                 [&](int64_t i) { matrix.widen_share(i * share, std::min(share, outer - i * share), scratch_.as<float>()); });
  }
  const float* at(int64_t row, int64_t column) const { return values_ + row * layout_.row + column * layout_.column; }
  const MatrixLayout& layout() const { return layout_; }

 private:
  MatrixLayout layout_;
  Scratch scratch_;
  const float* values_ = nullptr;
};

// Everything in one piece, on this thread.
void multiply_whole(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                    int64_t k, const float* bias) {
  BlockOutput out(context, call, slot);
  const WholeFactor wide_a(context, a, m, k), wide_b(context, b, k, n);
  const Scratch wide(context.allocator, bytes_of(out.place(0) == nullptr ? m * n : 0));
  float* c = out.place(0) != nullptr ? out.place(0) : wide.as<float>();
  if (m * n * k <= kPlainWork) {
    plain_product(wide_a.at(0, 0), wide_a.layout(), wide_b.at(0, 0), wide_b.layout(), bias, m, n, k, c);
  } else {
    const Gemm& gemm = context.gemms->find({m, n, k, wide_a.layout(), wide_b.layout(), n, bias != nullptr, false});
    const Scratch scratch(context.allocator, gemm.scratch_bytes());
    gemm.run(0, wide_a.at(0, 0), wide_b.at(0, 0), bias, c, scratch.as<void>());
  }
  out.put(0, c, m * n);
  out.finish();
}

// The two products that a tiling needs: for whole tiles, and for a last shorter one.
struct TileGemms {
  const Gemm* whole;
  const Gemm* last;
  size_t scratch_bytes;
};
TileGemms tile_gemms(Context& context, const Tiling& tiling, GemmShape shape, const Matrix& a, const Matrix& b,
                     const MatrixLayout* a_layout, const MatrixLayout* b_layout) {
  const auto find = [&](int64_t extent) {
    GemmShape tile = shape;
    (tiling.cut == Cut::rows ? tile.m : tiling.cut == Cut::columns ? tile.n : tile.k) = extent;
    tile.a = a_layout != nullptr ? *a_layout : a.tile_layout(tile.m, tile.k);
    tile.b = b_layout != nullptr ? *b_layout : b.tile_layout(tile.k, tile.n);
    return &context.gemms->find(tile);
  };
  const int64_t extent = extent_of_cut(tiling.cut, shape.m, shape.n, shape.k);
  const int64_t rest = extent - (tiling.tiles - 1) * tiling.tile;
  TileGemms gemms{find(tiling.tile), find(rest), 0};
  gemms.scratch_bytes = std::max(gemms.whole->scratch_bytes(), gemms.last->scratch_bytes());
  return gemms;
}

// Rows of a, and of the result.
void multiply_rows(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                   int64_t k, const float* bias, const Tiling& tiling) {
  BlockOutput out(context, call, slot, tiling.tile * n);
  const WholeFactor wide_b(context, b, k, n);
  const TileGemms gemms =
      tile_gemms(context, tiling, {m, n, k, {}, {}, n, bias != nullptr, false}, a, b, nullptr, &wide_b.layout());
  const ThreadScratch inner(context.allocator, context.threads, gemms.scratch_bytes);
  const ThreadScratch wide_a(context.allocator, context.threads, bytes_of(a.tile_values(tiling.tile, k)));
  const ThreadScratch wide_c(context.allocator, context.threads, out.place(0) != nullptr ? 0 : bytes_of(tiling.tile * n));
  parallel_for(context, tiling.tiles, true, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    const int64_t first = i * tiling.tile, rows = std::min(tiling.tile, m - first);
    float* c = out.place(first * n) != nullptr ? out.place(first * n) : wide_c.of(thread);
    const Gemm& gemm = i + 1 < tiling.tiles ? *gemms.whole : *gemms.last;
    gemm.run(thread, a.tile(first, 0, rows, k, wide_a.of(thread)), wide_b.at(0, 0), bias, c, inner.of(thread));
    out.put(first * n, c, rows * n);
  });
  out.finish();
}

void put_all(Context& context, BlockOutput& out, const float* values) {
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock;
    out.put(begin, values + begin, std::min(kStatisticsBlock, out.size() - begin));
  });
  out.finish();
}

// Columns of b, and of the result.
void multiply_columns(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                      int64_t k, const float* bias, const Tiling& tiling) {
  BlockOutput out(context, call, slot);
  const WholeFactor wide_a(context, a, m, k);
  const TileGemms gemms =
      tile_gemms(context, tiling, {m, n, k, {}, {}, n, bias != nullptr, false}, a, b, &wide_a.layout(), nullptr);
  const ThreadScratch inner(context.allocator, context.threads, gemms.scratch_bytes);
  const ThreadScratch wide_b(context.allocator, context.threads, bytes_of(b.tile_values(k, tiling.tile)));
  const Scratch wide_c(context.allocator, bytes_of(out.place(0) != nullptr ? 0 : m * n));
  float* c = out.place(0) != nullptr ? out.place(0) : wide_c.as<float>();
  parallel_for(context, tiling.tiles, true, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    const int64_t first = i * tiling.tile, columns = std::min(tiling.tile, n - first);
    const Gemm& gemm = i + 1 < tiling.tiles ? *gemms.whole : *gemms.last;
    gemm.run(thread, wide_a.at(0, 0), b.tile(0, first, k, columns, wide_b.of(thread)), bias != nullptr ? bias + first : nullptr,
             c + first, inner.of(thread));
  });
  put_all(context, out, c);
}

// Terms of the sums: each thread adds up its tiles, and the threads' results are added in their order.
void multiply_depth(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                    int64_t k, const float* bias, const Tiling& tiling) {
  BlockOutput out(context, call, slot);
  const TileGemms first_gemms = tile_gemms(context, tiling, {m, n, k, {}, {}, n, false, false}, a, b, nullptr, nullptr);
  const TileGemms next_gemms = tile_gemms(context, tiling, {m, n, k, {}, {}, n, false, true}, a, b, nullptr, nullptr);
  const ThreadScratch inner(context.allocator, context.threads, std::max(first_gemms.scratch_bytes, next_gemms.scratch_bytes));
  const ThreadScratch wide_a(context.allocator, context.threads, bytes_of(a.tile_values(m, tiling.tile)));
  const ThreadScratch wide_b(context.allocator, context.threads, bytes_of(b.tile_values(tiling.tile, n)));
  const ThreadScratch sums(context.allocator, context.threads, bytes_of(m * n));
  const auto shares = std::min<int64_t>(context.threads, tiling.tiles);
  parallel_for(context, shares, true, [&](int64_t share) {
    const int thread = omp_get_thread_num();
    const int64_t begin = tiling.tiles * share / shares, end = tiling.tiles * (share + 1) / shares;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * tiling.tile, depth = std::min(tiling.tile, k - first);
      const TileGemms& gemms = i == begin ? first_gemms : next_gemms;
      const Gemm& gemm = i + 1 < tiling.tiles ? *gemms.whole : *gemms.last;
      gemm.run(thread, a.tile(0, first, m, depth, wide_a.of(thread)), b.tile(first, 0, depth, n, wide_b.of(thread)), nullptr,
               sums.of(static_cast<int>(share)), inner.of(thread));
    }
  });
  float* total = sums.of(0);
  for (int64_t share = 1; share < shares; ++share) {
    const float* part = sums.of(static_cast<int>(share));
    for (int64_t i = 0; i < m * n; ++i) total[i] += part[i];
  }
  if (bias != nullptr) {
    for (int64_t i = 0; i < m * n; ++i) total[i] += bias[i % n];
  }
  put_all(context, out, total);
}

// Rows of a times the few columns of b.
void multiply_narrow(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                     int64_t k, const float* bias) {
  const bool parallel = m * k >= kParallelElements;
  const int64_t rows = parallel ? std::min(blocks_of(m, context.threads), std::max<int64_t>(16, kTileValues / k)) : m;
  BlockOutput out(context, call, slot, rows * n);
  const Matrix columns = b.transposed();
  const Scratch wide_b(context.allocator, bytes_of(n * k));
  if (columns.row_major()) {
    for (int64_t j = 0; j < n; ++j) {
      float* to = wide_b.as<float>() + j * k;
      const float* from = columns.tile(j, 0, 1, k, to);
      if (from != to) std::copy_n(from, k, to);
    }
  } else {
    for (int64_t l = 0; l < k; ++l) {
      float row[kNarrowColumns];
      const float* values = b.tile(l, 0, 1, n, row);
      for (int64_t j = 0; j < n; ++j) wide_b.as<float>()[j * k + l] = values[j * b.tile_layout(1, n).column];
    }
  }
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_a(context.allocator, slots, bytes_of(a.tile_values(rows, k)));
  const ThreadScratch wide_c(context.allocator, slots, out.place(0) != nullptr ? 0 : bytes_of(rows * n));
  parallel_for(context, blocks_of(m, rows), parallel, [&](int64_t i) {
    const int thread = parallel ? omp_get_thread_num() : 0;
    const int64_t first = i * rows, count = std::min(rows, m - first);
    float* c = out.place(first * n) != nullptr ? out.place(first * n) : wide_c.of(thread);
    narrow_product(
        {a.tile(first, 0, count, k, wide_a.of(thread)), a.tile_layout(count, k).row, wide_b.as<float>(), bias, count, n, k, c});
    out.put(first * n, c, count * n);
  });
  out.finish();
}

// The transposed product, for a result that is long and thin the wrong way round.
void multiply_transposed(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n,
                         int64_t k, const float* bias) {
  const Scratch transposed(context.allocator, bytes_of(m * n)), result(context.allocator, bytes_of(m * n));
  TensorView view;
  view.data = transposed.as<void>();
  view.rank = 2;
  view.shape = {n, m};
  view.strides = {m, 1};
  const OpCall inner{call.op, call.inputs, {&view, 1}, call.attributes, {}};
  multiply(context, inner, 0, b.transposed(), a.transposed(), n, m, k, nullptr);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      result.as<float>()[i * n + j] = transposed.as<float>()[j * m + i] + (bias != nullptr ? bias[j] : 0.0f);
    }
  }
  store_output(call, slot, result.as<float>());
}

}  // namespace

void multiply(Context& context, const OpCall& call, int slot, const Matrix& a, const Matrix& b, int64_t m, int64_t n, int64_t k,
              const float* bias) {
  if (n <= kNarrowColumns && m >= 8 && k >= kSumLanes && a.row_major()) {
    return multiply_narrow(context, call, slot, a, b, m, n, k, bias);
  }
  if (n <= 16 && m > 2 * n && k >= kSumLanes && !a.row_major() && m * n <= kTileValues) {
    return multiply_transposed(context, call, slot, a, b, m, n, k, bias);
  }
  const Tiling tiling = choose_tiling(m, n, k, context.threads);
  switch (tiling.cut) {
    case Cut::none:
      return multiply_whole(context, call, slot, a, b, m, n, k, bias);
    case Cut::rows:
      return multiply_rows(context, call, slot, a, b, m, n, k, bias, tiling);
    case Cut::columns:
      return multiply_columns(context, call, slot, a, b, m, n, k, bias, tiling);
    case Cut::depth:
      return multiply_depth(context, call, slot, a, b, m, n, k, bias, tiling);
  }
}

void multiply_batch(Context& context, const OpCall& call, int slot, int64_t batch, const MatrixAt& a, const MatrixAt& b, int64_t m,
                    int64_t n, int64_t k) {
  BlockOutput out(context, call, slot, m * n);
  const Matrix first_a = a(0), first_b = b(0);
  const GemmShape shape{m, n, k, first_a.tile_layout(m, k), first_b.tile_layout(k, n), n, false, false};
  const Gemm& gemm = context.gemms->find(shape);
  const ThreadScratch inner(context.allocator, context.threads, gemm.scratch_bytes());
  const ThreadScratch wide_a(context.allocator, context.threads, bytes_of(first_a.tile_values(m, k)));
  const ThreadScratch wide_b(context.allocator, context.threads, bytes_of(first_b.tile_values(k, n)));
  const ThreadScratch wide_c(context.allocator, context.threads, out.place(0) != nullptr ? 0 : bytes_of(m * n));
  parallel_for(context, batch, batch * m * n * k >= kSerialWork, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    float* c = out.place(i * m * n) != nullptr ? out.place(i * m * n) : wide_c.of(thread);
    gemm.run(thread, a(i).tile(0, 0, m, k, wide_a.of(thread)), b(i).tile(0, 0, k, n, wide_b.of(thread)), nullptr, c,
             inner.of(thread));
    out.put(i * m * n, c, m * n);
  });
  out.finish();
}

}  // namespace ulpscope::cpu
