// One factor of a matrix product as it lies in memory: any type, any strides. Tiles of it are widened into a buffer, or used in
// place.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/format.h"
#include "ulpscope/kernels/cpu/gemm.h"

namespace ulpscope::cpu {

class Matrix {
 public:
  Matrix(const void* data, DType dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);

  Matrix transposed() const { return Matrix(data_, dtype_, columns_, rows_, column_stride_, row_stride_); }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // True iff the elements of a row lie together.
  bool row_major() const { return row_major_ && column_stride_ == 1; }
  // Tiles can be used where they lie.
  bool direct() const { return direct_; }
  // Tiles are copied after all where columns lie together a multiple of 4 KiB apart: all rows of such a factor fall into the same
  // few sets of L1, and a product that has to transpose it runs at 0.6 of its speed (measured, k = 1024).
  void avoid_aliasing();
  // The size of the buffer that tile() fills for a tile of this size.
  int64_t tile_values(int64_t rows, int64_t columns) const;
  // How a tile of this size lies in the buffer that tile() fills, or in place.
  MatrixLayout tile_layout(int64_t rows, int64_t columns) const;
  // The tile from (row, column) on, widened into `buffer` where it is not direct.
  const float* tile(int64_t row, int64_t column, int64_t rows, int64_t columns, float* buffer) const;
  // The same for a part of the tile's buffer, so that several threads can fill one: its share of the outer dimension.
  int64_t outer_extent() const { return row_major_ ? rows_ : columns_; }
  void widen_share(int64_t first, int64_t count, float* buffer) const;

 private:
  const void* data_;
  DType dtype_;
  int64_t rows_, columns_, row_stride_, column_stride_;
  bool row_major_, direct_;
};

}  // namespace ulpscope::cpu
