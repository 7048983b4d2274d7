#include "ulpscope/kernels/cpu/product.h"

#include <algorithm>
#include <array>
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
constexpr int64_t kSerialMultiplications = 1 << 18;
// FP32 values of a tile of one factor and of the result: 384 KiB of an L2 of 1 MiB, which also holds the other factor.
constexpr int64_t kTileValues = 96 * 1024;

enum class Cut { none, rows, columns, depth };

struct Tiling {
  Cut cut = Cut::none;
  int64_t tile = 0;  // extent of a tile along what is cut; the last may be shorter
  int64_t tiles = 1;
};

// The extent that is cut.
int64_t& extent_of(Cut cut, GemmShape& shape) { return cut == Cut::rows ? shape.m : cut == Cut::columns ? shape.n : shape.k; }

Tiling choose_tiling(GemmShape shape, int threads) {
  const auto [m, n, k] = std::array{shape.m, shape.n, shape.k};
  if (m * n * k < kSerialMultiplications) return {};
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
  const int64_t extent = extent_of(tiling.cut, shape);
  const int64_t largest = std::max(multiple, kTileValues / other / multiple * multiple);
  const int64_t count = blocks_of(blocks_of(extent, largest), threads) * threads;  // an equal number for each thread
  tiling.tile = blocks_of(blocks_of(extent, count), multiple) * multiple;
  tiling.tiles = blocks_of(extent, tiling.tile);
  if (tiling.tiles == 1) return {};
  return tiling;
}

// a b + bias, the first output of a call.
struct Product {
  Context& context;
  const OpCall& call;
  const Matrix &a, &b;
  const float* bias;  // n values or nullptr
  int64_t m = a.rows(), n = b.columns(), k = a.columns();

  GemmShape shape() const { return {m, n, k, {}, {}, n, bias != nullptr, false}; }
};

// A factor in tiles of at most rows x columns: as it lies in memory, or widened by the thread that needs the tile. One tile that is
// all of it is widened once, by all threads.
class Factor {
 public:
  Factor(Context& context, const Matrix& matrix, int64_t rows, int64_t columns)
      : matrix_(matrix),
        rows_(rows),
        columns_(columns),
        is_shared_(!matrix.direct() && rows >= matrix.rows() && columns >= matrix.columns()),
        wide_(context.allocator, is_shared_ ? 1 : context.threads, bytes_of(matrix.tile_values(rows, columns))) {
    if (!is_shared_) return;
    const int64_t outer = matrix.outer_extent(), share = std::max<int64_t>(1, blocks_of(outer, 4 * context.threads));
    parallel_for(context, blocks_of(outer, share), rows * columns >= kParallelElements,
                 [&](int64_t i) { matrix.widen_share(i * share, std::min(share, outer - i * share), wide_.of(0)); });
  }
  const float* tile(int thread, int64_t row, int64_t column) const {
    if (is_shared_) return wide_.of(0);
    const int64_t rows = std::min(rows_, matrix_.rows() - row), columns = std::min(columns_, matrix_.columns() - column);
    return matrix_.tile(row, column, rows, columns, wide_.of(thread));
  }
  MatrixLayout layout(int64_t rows, int64_t columns) const { return matrix_.tile_layout(rows, columns); }

 private:
  const Matrix& matrix_;
  int64_t rows_, columns_;
  bool is_shared_;
  ThreadScratch wide_;
};

// The oneDNN products that a tiling needs: for whole tiles, and for a last shorter one.
class TileGemms {
 public:
  TileGemms(Context& context, const Tiling& tiling, const GemmShape& shape, const Factor& a, const Factor& b)
      : tiles_(tiling.tiles),
        whole_(find(context, tiling, 0, shape, a, b)),
        last_(find(context, tiling, tiles_ - 1, shape, a, b)),
        scratch_(context.allocator, context.threads, std::max(whole_.scratch_bytes(), last_.scratch_bytes())) {}
  void run(int64_t tile, int thread, const float* a, const float* b, const float* bias, float* c) const {
    (tile + 1 < tiles_ ? whole_ : last_).run(thread, a, b, bias, c, scratch_.of(thread));
  }

 private:
  static const Gemm& find(Context& context, const Tiling& tiling, int64_t tile, GemmShape shape, const Factor& a, const Factor& b) {
    if (int64_t& extent = extent_of(tiling.cut, shape); tiling.cut != Cut::none) {
      extent = std::min(tiling.tile, extent - tile * tiling.tile);
    }
    shape.a = a.layout(shape.m, shape.k);
    shape.b = b.layout(shape.k, shape.n);
    return context.gemms->find(shape);
  }

  int64_t tiles_;
  const Gemm &whole_, &last_;
  ThreadScratch scratch_;
};

void put_all(Context& context, BlockOutput& out, const float* values) {
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock;
    out.put(begin, values + begin, std::min(kStatisticsBlock, out.size() - begin));
  });
  out.finish();
}

// For the smallest products, on this thread. The sum runs over k in order.
void multiply_plain(const Product& p) {
  BlockOutput out(p.context, p.call, 0);
  const Factor wide_a(p.context, p.a, p.m, p.k), wide_b(p.context, p.b, p.k, p.n);
  const float *a = wide_a.tile(0, 0, 0), *b = wide_b.tile(0, 0, 0);
  const MatrixLayout a_layout = wide_a.layout(p.m, p.k), b_layout = wide_b.layout(p.k, p.n);
  const ThreadTiles tiles(p.context, out, 1, p.m * p.n);
  float* c = tiles.at(0, 0);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        sum += a[i * a_layout.row + l * a_layout.column] * b[l * b_layout.row + j * b_layout.column];
      }
      c[i * p.n + j] = p.bias != nullptr ? sum + p.bias[j] : sum;
    }
  }
  out.put(0, c, p.m * p.n);
  out.finish();
}

// Tiles of rows of a, of columns of b, or all in one piece, on this thread.
void multiply_tiles(const Product& p, const Tiling& tiling) {
  const bool by_rows = tiling.cut == Cut::rows, by_columns = tiling.cut == Cut::columns;
  const int64_t rows = by_rows ? tiling.tile : p.m, columns = by_columns ? tiling.tile : p.n;
  BlockOutput out(p.context, p.call, 0, rows * p.n);
  const Factor a(p.context, p.a, rows, p.k), b(p.context, p.b, p.k, columns);
  const TileGemms gemms(p.context, tiling, p.shape(), a, b);
  const ThreadTiles tiles(p.context, out, by_rows ? p.context.threads : 1, rows * p.n);
  parallel_for(p.context, tiling.tiles, true, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    const int64_t row = by_rows ? i * rows : 0, column = by_columns ? i * columns : 0;
    float* c = tiles.at(by_rows ? thread : 0, row * p.n) + column;
    gemms.run(i, thread, a.tile(thread, row, 0), b.tile(thread, 0, column), p.bias != nullptr ? p.bias + column : nullptr, c);
    if (!by_columns) out.put(row * p.n, c, std::min(rows, p.m - row) * p.n);
  });
  if (by_columns) return put_all(p.context, out, tiles.at(0, 0));
  out.finish();
}

// Terms of the sums: each thread adds up its tiles, and the threads' results are added in their order.
void multiply_depth(const Product& p, const Tiling& tiling) {
  BlockOutput out(p.context, p.call, 0);
  const Factor a(p.context, p.a, p.m, tiling.tile), b(p.context, p.b, tiling.tile, p.n);
  GemmShape shape = p.shape();
  shape.bias = false;
  const TileGemms first(p.context, tiling, shape, a, b);
  shape.accumulate = true;
  const TileGemms next(p.context, tiling, shape, a, b);
  const ThreadScratch sums(p.context.allocator, p.context.threads, bytes_of(p.m * p.n));
  const auto shares = std::min<int64_t>(p.context.threads, tiling.tiles);
  parallel_for(p.context, shares, true, [&](int64_t share) {
    const int thread = omp_get_thread_num();
    const int64_t begin = tiling.tiles * share / shares, end = tiling.tiles * (share + 1) / shares;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t term = i * tiling.tile;
      (i == begin ? first : next)
          .run(i, thread, a.tile(thread, 0, term), b.tile(thread, term, 0), nullptr, sums.of(static_cast<int>(share)));
    }
  });
  float* total = sums.of(0);
  for (int64_t share = 1; share < shares; ++share) {
    const float* part = sums.of(static_cast<int>(share));
    for (int64_t i = 0; i < p.m * p.n; ++i) total[i] += part[i];
  }
  if (p.bias != nullptr) {
    for (int64_t i = 0; i < p.m * p.n; ++i) total[i] += p.bias[i % p.n];
  }
  put_all(p.context, out, total);
}

// Rows of a times the few columns of b.
void multiply_narrow(const Product& p) {
  const bool parallel = p.m * p.k >= kParallelElements;
  const int64_t rows = parallel ? std::min(blocks_of(p.m, p.context.threads), std::max<int64_t>(16, kTileValues / p.k)) : p.m;
  BlockOutput out(p.context, p.call, 0, rows * p.n);
  const Matrix columns = p.b.transposed();
  const Scratch wide_b(p.context.allocator, bytes_of(p.n * p.k));
  float* b = wide_b.as<float>();
  if (columns.row_major()) {
    for (int64_t j = 0; j < p.n; ++j) {
      const float* from = columns.tile(j, 0, 1, p.k, b + j * p.k);
      if (from != b + j * p.k) std::copy_n(from, p.k, b + j * p.k);
    }
  } else {
    for (int64_t l = 0; l < p.k; ++l) {
      float row[kNarrowColumns];
      const float* values = p.b.tile(l, 0, 1, p.n, row);
      for (int64_t j = 0; j < p.n; ++j) b[j * p.k + l] = values[j * p.b.tile_layout(1, p.n).column];
    }
  }
  const Factor a(p.context, p.a, rows, p.k);
  const ThreadTiles tiles(p.context, out, p.context.threads, rows * p.n);
  parallel_for(p.context, blocks_of(p.m, rows), parallel, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    const int64_t first = i * rows, count = std::min(rows, p.m - first);
    float* c = tiles.at(thread, first * p.n);
    narrow_product({a.tile(thread, first, 0), a.layout(count, p.k).row, b, p.bias, count, p.n, p.k, c});
    out.put(first * p.n, c, count * p.n);
  });
  out.finish();
}

// The transposed product, for a result that is long and thin the wrong way round.
void multiply_transposed(const Product& p) {
  const Scratch transposed(p.context.allocator, bytes_of(p.m * p.n)), result(p.context.allocator, bytes_of(p.m * p.n));
  TensorView view;
  view.data = transposed.as<void>();
  view.rank = 2;
  view.shape = {p.n, p.m};
  view.strides = {p.m, 1};
  const OpCall inner{p.call.op, p.call.inputs, {&view, 1}, p.call.attributes, {}};
  multiply(p.context, inner, p.b.transposed(), p.a.transposed(), nullptr);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      result.as<float>()[i * p.n + j] = transposed.as<float>()[j * p.m + i] + (p.bias != nullptr ? p.bias[j] : 0.0f);
    }
  }
  store_output(p.call, 0, result.as<float>());
}

}  // namespace

void multiply(Context& context, const OpCall& call, const Matrix& a, const Matrix& b, const float* bias) {
  const Product p{context, call, a, b, bias};
  if (p.n <= kNarrowColumns && p.m >= 8 && p.k >= kSumLanes && a.row_major()) return multiply_narrow(p);
  if (p.n <= 16 && p.m > 2 * p.n && p.k >= kSumLanes && !a.row_major() && p.m * p.n <= kTileValues) return multiply_transposed(p);
  if (p.m * p.n * p.k <= kPlainWork) return multiply_plain(p);
  const Tiling tiling = choose_tiling(p.shape(), context.threads);
  return tiling.cut == Cut::depth ? multiply_depth(p, tiling) : multiply_tiles(p, tiling);
}

void multiply_batch(Context& context, const OpCall& call, int64_t batch, const MatrixAt& a, const MatrixAt& b) {
  const Matrix first_a = a(0), first_b = b(0);
  GemmShape shape{first_a.rows(), first_b.columns(), first_a.columns(), {}, {}, first_b.columns(), false, false};
  shape.a = first_a.tile_layout(shape.m, shape.k);
  shape.b = first_b.tile_layout(shape.k, shape.n);
  const Gemm& gemm = context.gemms->find(shape);
  const int64_t size = shape.m * shape.n;
  BlockOutput out(context, call, 0, size);
  const ThreadScratch inner(context.allocator, context.threads, gemm.scratch_bytes());
  const ThreadScratch wide_a(context.allocator, context.threads, bytes_of(first_a.tile_values(shape.m, shape.k)));
  const ThreadScratch wide_b(context.allocator, context.threads, bytes_of(first_b.tile_values(shape.k, shape.n)));
  const ThreadTiles tiles(context, out, context.threads, size);
  parallel_for(context, batch, batch * size * shape.k >= kSerialMultiplications, [&](int64_t i) {
    const int thread = omp_get_thread_num();
    float* c = tiles.at(thread, i * size);
    gemm.run(thread, a(i).tile(0, 0, shape.m, shape.k, wide_a.of(thread)), b(i).tile(0, 0, shape.k, shape.n, wide_b.of(thread)),
             nullptr, c, inner.of(thread));
    out.put(i * size, c, size);
  });
  out.finish();
}

}  // namespace ulpscope::cpu
