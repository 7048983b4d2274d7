// What the sums of a matrix product are kept in (op_call_arithmetic.h), one class for each kind: columns are prepared once, then
// any thread computes any rows. What accumulated_product.h says of terms and of the bias holds here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ulpscope/emulation/exact_product.h"
#include "ulpscope/emulation/tensor_core_product.h"
#include "ulpscope/kernels/cpu/accumulated_product.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope::cpu {

// The columns of a product's second factor, one after the other, in their own type, and what is added to their sums.
struct FactorColumns {
  const void* data;
  int64_t count, terms;   // of columns, and of each: 1 or more
  const float* bias;      // one for each column, or nullptr
  RoundingMode rounding;  // of the output that sums are rounded to
};

// Each has
//   Sum                          what sums are known in,
//   the constructor              which needs `columns` no longer than it lasts, but for the bias,
//   rows(factors, count, sums)   of `count` rows of the first factor, in their own type, all sums, row after row.

class TensorCoreAccumulator {
 public:
  using Sum = float;
  TensorCoreAccumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor& parallel_for);
  void rows(const void* factors, int64_t count, float* sums) const;

 private:
  int64_t columns_, terms_;
  const float* bias_;
  TensorCoreProduct product_;
};

// Columns as FP32 numbers, side by side for each term, and rows that become such numbers.
class WideFactors {
 public:
  // Each term has `row` elements, at least as many as there are columns; those beyond are zero.
  WideFactors(const AccumulatedProduct& product, const FactorColumns& columns, int64_t row);
  const float* of_term(int64_t term) const { return by_term_.data() + term * row_; }
  std::vector<float> rows(const void* factors, int64_t count) const;
  const float* bias() const { return bias_; }
  int64_t columns() const { return columns_; }
  int64_t terms() const { return terms_; }
  int64_t row() const { return row_; }

 private:
  DType dtype_;
  int64_t columns_, terms_, row_;
  const float* bias_;
  std::vector<float> by_term_;
};

class NarrowAccumulator {
 public:
  using Sum = float;
  NarrowAccumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor& parallel_for);
  void rows(const void* factors, int64_t count, float* sums) const;

 private:
  const FloatFormat& format_;
  WideFactors wide_;
};

class Fp64Accumulator {
 public:
  using Sum = double;
  Fp64Accumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor& parallel_for);
  void rows(const void* factors, int64_t count, double* sums) const;

 private:
  WideFactors wide_;
};

// Rounded to odd, so that rounding them to an output's type is one rounding of the exact sum, of which the bias is a term.
class ExactAccumulator {
 public:
  using Sum = double;
  ExactAccumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor& parallel_for);
  void rows(const void* factors, int64_t count, double* sums) const;

 private:
  DType dtype_;
  int64_t terms_;
  RoundingMode rounding_;
  std::optional<ExactProduct> product_;
};

}  // namespace ulpscope::cpu
