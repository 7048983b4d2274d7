// Matrix products whose elements are exact, at the speed of vectors: each is the sum of its products, rounded once, to odd, into
// FP64. So its rounding into any format of at most 51 significant bits is one of the exact sum, in every mode.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/base/parallel_for.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// FP32 numbers in memory. Strides count elements.
struct FloatMatrix {
  const float* data = nullptr;
  int64_t row_stride = 0, column_stride = 1;
};

// The bits that numbers have among them, zeros left out: all are multiples of 2^lowest below 2^end. Of zeros only: empty.
struct BitRange {
  int lowest = 0, end = 0;

  bool is_empty() const { return lowest == end; }
  friend BitRange operator*(const BitRange& a, const BitRange& b) {
    return a.is_empty() || b.is_empty() ? BitRange{} : BitRange{a.lowest + b.lowest, a.end + b.end};
  }
};

// D = A B + c with a B that is prepared once. Rows of D do not depend on each other: threads may compute different ones at a time.
class ExactProduct {
 public:
  // B is k x n; c has n elements, each a term of every sum of its column, or is nullptr. Nothing of them is needed after the
  // constructor, which may prepare columns side by side. Throws a usage Error for a negative extent and for a null pointer to
  // elements that there should be.
  ExactProduct(const FloatMatrix& b, int64_t k, int64_t n, const float* c = nullptr, const ParallelFor& parallel_for = serial_for);

  // The rows [first, last) of D, which is row-major and has rows of n. A has k columns. NaN, Inf and zeros are as ExactSum has them
  // (exact_sum.h); `mode`, that of the rounding to come, decides the sign of a zero. Throws as the constructor does.
  void compute(const FloatMatrix& a, double* d, int64_t first, int64_t last, RoundingMode mode = RoundingMode::nearest_even) const;

 private:
  // 16 columns. `range` leaves out those with NaN or Inf.
  struct Panel {
    BitRange range;
    uint32_t special_columns = 0;  // one bit each: those with NaN or Inf
  };
  void prepare(const FloatMatrix& b, const float* c, int64_t index);
  void compute_panel(const float* row, const BitRange& range, bool is_special, int64_t panel, RoundingMode mode,
                     double* sums) const;
  double signed_zero(const float* row, int64_t panel, int64_t column, RoundingMode mode) const;
  void sum_one_by_one(const float* row, int64_t panel, RoundingMode mode, double* sums) const;

  int64_t k_, n_, terms_;
  std::vector<float> columns_;  // panels, for each term 16 numbers
  std::vector<Panel> panels_;
};

}  // namespace ulpscope
