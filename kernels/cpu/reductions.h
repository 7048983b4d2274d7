// Sums in the order of reduction_order.h, for ops that reduce.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/reduction_order.h"

namespace ulpscope::cpu {

// The sums over the dimensions in `mask`, for each index of the others in their logical order.
void sum_rows(Context& context, const TensorView& view, unsigned mask, float* sums);

// n rows of `columns` values: neighbours are added by the tree until one is left, the first.
void add_blocks(float* rows, int64_t n, int64_t columns);

// Rows of floats and, for each of kSumLanes lanes, the sums of its rows: row r belongs to lane r % lanes.
struct RowSums {
  const float* x = nullptr;
  int64_t stride = 0;  // between rows
  int64_t rows = 0, columns = 0, lanes = 0;
};
// Chosen by the CPU's instruction set. Sums lie as lanes x columns.
struct ReductionKernels {
  // sums += x
  void (*add)(const RowSums& rows, float* sums);
  // deviations += x - center, squares += (x - center)^2; center has a value for each column.
  void (*add_deviations)(const RowSums& rows, const float* center, float* deviations, float* squares);
  // sums += g, products += g * (x - center); g has the stride of x.
  void (*add_products)(const RowSums& rows, const float* g, const float* center, float* sums, float* products);
  // 16 lanes of FP64 sums += x^2, for n values, the first of which belongs to lane 0.
  void (*add_squares)(const float* x, int64_t n, double* sums);
  // y = (x - center) * factor + bias
  void (*normalize)(const RowSums& rows, const float* center, const float* factor, const float* bias, float* y);
  // dx = factor * ((g - offset) - (x - center) * slope), g and dx with the stride of x; without x, dx = factor * g.
  void (*normalize_backward)(const RowSums& rows, const float* g, const float* center, const float* offset, const float* slope,
                             const float* factor, float* dx);
};
const ReductionKernels& reduction_kernels();

// A tensor seen as rows of channels: element (row, channel) lies at row * channels + channel. The rows are the terms of a
// reduction. It is cut into blocks of kReductionBlock rows and strips of kStrip channels; a thread handles one such piece at a
// time.
struct RowsOfChannels {
  static constexpr int64_t kStrip = 256;
  static constexpr int64_t kPiece = kReductionBlock * kStrip;  // values of a piece: 512 KiB
  const TensorView* view = nullptr;
  int64_t rows = 0, channels = 0;

  // True iff the dimensions outside `mask` lie, in their order, together and fastest in a dense tensor.
  static bool fits(const TensorView& view, unsigned mask);
  RowsOfChannels(const TensorView& view, unsigned mask);

  int64_t blocks() const { return (rows + kReductionBlock - 1) / kReductionBlock; }
  int64_t strips() const { return (channels + kStrip - 1) / kStrip; }
  // A piece as FP32, in place or widened into `buffer`.
  RowSums piece(int64_t block, int64_t strip, float* buffer) const;
};

// Brings the rows of a piece into the form that the kernels handle best: narrow ones are taken kSumLanes at a time as one
// long row, and values for each column repeated as often.
class LaneForm {
 public:
  static constexpr int64_t kNarrow = 32;                                // columns; at most these are repeated
  static constexpr int64_t kSums = kSumLanes * RowsOfChannels::kStrip;  // room for the sums of a piece

  explicit LaneForm(const RowSums& rows);
  int parts() const { return rest_.columns > 0 ? 2 : 1; }
  const RowSums& part(int i) const { return i == 0 ? whole_ : rest_; }
  // Where part i's values begin in another array of the same layout.
  int64_t offset(int i) const { return part(i).x - whole_.x; }
  // A value for each column, in this form; `buffer` has room for kNarrow * kSumLanes.
  const float* repeat(const float* values, float* buffer) const;
  // Adds the lanes by the tree: the sum of each column is left in sums[column].
  void add_lanes(float* sums) const;

 private:
  int64_t columns_;
  bool narrow_;
  RowSums whole_, rest_;
};

// The sum of at most kReductionBlock values in the order of reduction_order.h, in which blocks are then merged.
float block_sum(const float* values, int64_t n);

}  // namespace ulpscope::cpu
