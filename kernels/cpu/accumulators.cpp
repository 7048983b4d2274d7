#include "ulpscope/kernels/cpu/accumulators.h"

#include <algorithm>

#include "ulpscope/kernels/cpu/accumulation.h"
#include "ulpscope/kernels/cpu/reader.h"

namespace ulpscope::cpu {
namespace {

std::vector<float> widened(DType dtype, const void* from, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  widen_run(from, dtype, 0, 1, count, wide.data());
  return wide;
}

int64_t padded(int64_t columns) { return (columns + kAccumulatedColumns - 1) / kAccumulatedColumns * kAccumulatedColumns; }

template <typename Sum>
void add_bias(const float* bias, int64_t columns, int64_t rows, Sum* sums) {
  if (bias == nullptr) return;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) sums[i * columns + j] += static_cast<Sum>(bias[j]);
}

}  // namespace

TensorCoreAccumulator::TensorCoreAccumulator(const AccumulatedProduct& product, const FactorColumns& columns,
                                             const ParallelFor& parallel_for)
    : columns_(columns.count),
      terms_(columns.terms),
      bias_(columns.bias),
      product_(*product.core, {columns.data, 1, columns.terms}, columns.terms, columns.count, {}, parallel_for) {}

void TensorCoreAccumulator::rows(const void* factors, int64_t count, float* sums) const {
  product_.compute({factors, terms_, 1}, {}, sums, 0, count);
  add_bias(bias_, columns_, count, sums);
}

WideFactors::WideFactors(const AccumulatedProduct& product, const FactorColumns& columns, int64_t row)
    : dtype_(product.factors[0]),
      columns_(columns.count),
      terms_(columns.terms),
      row_(row),
      bias_(columns.bias),
      by_term_(static_cast<size_t>(row * columns.terms)) {
  const std::vector<float> wide = widened(product.factors[1], columns.data, columns_ * terms_);
  for (int64_t j = 0; j < columns_; ++j)
    for (int64_t l = 0; l < terms_; ++l) by_term_[static_cast<size_t>(l * row_ + j)] = wide[static_cast<size_t>(j * terms_ + l)];
}

std::vector<float> WideFactors::rows(const void* factors, int64_t count) const { return widened(dtype_, factors, count * terms_); }

NarrowAccumulator::NarrowAccumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor&)
    : format_(*product.narrow), wide_(product, columns, padded(columns.count)) {}

void NarrowAccumulator::rows(const void* factors, int64_t count, float* sums) const {
  const std::vector<float> wide = wide_.rows(factors, count);
  std::vector<float> of_row(static_cast<size_t>(wide_.row()));
  for (int64_t i = 0; i < count; ++i) {
    accumulate_in(format_, wide.data() + i * wide_.terms(), wide_.of_term(0), wide_.terms(), wide_.row(), of_row.data());
    std::copy_n(of_row.data(), wide_.columns(), sums + i * wide_.columns());
  }
  add_bias(wide_.bias(), wide_.columns(), count, sums);
}

Fp64Accumulator::Fp64Accumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor&)
    : wide_(product, columns, columns.count) {}

void Fp64Accumulator::rows(const void* factors, int64_t count, double* sums) const {
  const std::vector<float> wide = wide_.rows(factors, count);
  const int64_t columns = wide_.columns(), terms = wide_.terms();
  for (int64_t i = 0; i < count; ++i) {
    double* row = sums + i * columns;
    for (int64_t l = 0; l < terms; ++l) {
      const double factor = wide[static_cast<size_t>(i * terms + l)];
      const float* b = wide_.of_term(l);
      // The first term is not added to +0, which would lose the sign of -0. Products of FP32 numbers are exact.
      for (int64_t j = 0; j < columns; ++j) row[j] = l == 0 ? factor * b[j] : row[j] + factor * b[j];
    }
  }
  add_bias(wide_.bias(), wide_.columns(), count, sums);
}

ExactAccumulator::ExactAccumulator(const AccumulatedProduct& product, const FactorColumns& columns, const ParallelFor& parallel_for)
    : dtype_(product.factors[0]), terms_(columns.terms), rounding_(columns.rounding) {
  const std::vector<float> wide = widened(product.factors[1], columns.data, columns.count * columns.terms);
  product_.emplace(FloatMatrix{wide.data(), 1, columns.terms}, columns.terms, columns.count, columns.bias, parallel_for);
}

void ExactAccumulator::rows(const void* factors, int64_t count, double* sums) const {
  const std::vector<float> wide = widened(dtype_, factors, count * terms_);
  product_->compute({wide.data(), terms_, 1}, sums, 0, count, rounding_);
}

}  // namespace ulpscope::cpu
