#include "ulpscope/kernels/cpu/matrix.h"

#include "ulpscope/kernels/cpu/reader.h"

namespace ulpscope::cpu {

Matrix::Matrix(const void* data, DType dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
    : data_(data), dtype_(dtype), rows_(rows), columns_(columns), row_stride_(row_stride), column_stride_(column_stride) {
  if (columns == 1) column_stride_ = 1;
  if (rows == 1) row_stride_ = column_stride_ == 1 ? columns : 1;
  row_major_ = column_stride_ == 1 || row_stride_ != 1;
  const bool rows_apart = column_stride_ == 1 && row_stride_ >= columns;
  const bool columns_apart = row_stride_ == 1 && column_stride_ >= rows;
  if (columns_apart && !rows_apart) row_major_ = false;
  direct_ = dtype == DType::f32 && (row_major_ ? rows_apart : columns_apart);
}

namespace {

// The distance of rows in a buffer: never a multiple of 1 KiB, see avoid_aliasing().
int64_t padded(int64_t extent) { return extent % 256 == 0 ? extent + 16 : extent; }

}  // namespace

void Matrix::avoid_aliasing() {
  if (!row_major_ && column_stride_ % 1024 == 0) direct_ = false;
}

int64_t Matrix::tile_values(int64_t rows, int64_t columns) const {
  if (direct_) return 0;
  return row_major_ ? rows * padded(columns) : columns * padded(rows);
}

MatrixLayout Matrix::tile_layout(int64_t rows, int64_t columns) const {
  if (direct_) return {row_stride_, column_stride_};
  return row_major_ ? MatrixLayout{padded(columns), 1} : MatrixLayout{1, padded(rows)};
}

const float* Matrix::tile(int64_t row, int64_t column, int64_t rows, int64_t columns, float* buffer) const {
  const int64_t offset = row * row_stride_ + column * column_stride_;
  if (direct_) return static_cast<const float*>(data_) + offset;
  if (row_major_) {
    for (int64_t i = 0; i < rows; ++i) {
      widen_run(data_, dtype_, offset + i * row_stride_, column_stride_, columns, buffer + i * padded(columns));
    }
  } else {
    for (int64_t j = 0; j < columns; ++j) {
      widen_run(data_, dtype_, offset + j * column_stride_, row_stride_, rows, buffer + j * padded(rows));
    }
  }
  return buffer;
}

void Matrix::widen_share(int64_t first, int64_t count, float* buffer) const {
  if (row_major_) {
    tile(first, 0, count, columns_, buffer + first * padded(columns_));
  } else {
    tile(0, first, rows_, count, buffer + first * padded(rows_));
  }
}

}  // namespace ulpscope::cpu
