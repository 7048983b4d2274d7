#include "ulpscope/emulation/exact_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/emulation/exact_lanes.h"
#include "ulpscope/emulation/exact_sum.h"

namespace ulpscope {

namespace {

constexpr ExactAccumulators kOneAccumulator{};

void check_argument(int64_t extent, const char* name) {
  if (extent < 0) throw usage_error("exact matrix product: {} is {}, expected at least 0", name, extent);
}

void check_argument(const void* data, bool needed, const char* name) {
  if (needed && data == nullptr) throw usage_error("exact matrix product: {} is a null pointer", name);
}

bool all_finite(const float* values, int64_t count, int64_t stride) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(values[i * stride]) & kExponent);
  return largest < kExponent;
}

// The narrowest range that has both.
BitRange both(const BitRange& a, const BitRange& b) {
  if (a.is_empty()) return b;
  if (b.is_empty()) return a;
  return {std::min(a.lowest, b.lowest), std::max(a.end, b.end)};
}

}  // namespace

ExactProduct::ExactProduct(const FloatMatrix& b, int64_t k, int64_t n, const float* c, const ParallelFor& parallel_for)
    : k_(k), n_(n), terms_(k + (c != nullptr ? 1 : 0)) {
  check_argument(k, "k");
  check_argument(n, "n");
  check_argument(b.data, k > 0 && n > 0, "b");
  panels_.resize(static_cast<size_t>((n + kExactPanel - 1) / kExactPanel));
  columns_.assign(panels_.size() * static_cast<size_t>(terms_ * kExactPanel), 0.0f);
  parallel_for(static_cast<int64_t>(panels_.size()), [&](int64_t index) { prepare(b, c, index); });
}

void ExactProduct::prepare(const FloatMatrix& b, const float* c, int64_t index) {
  const FloatingPointMode mode;
  Panel& panel = panels_[static_cast<size_t>(index)];
  const int64_t first = index * kExactPanel;
  for (int64_t column = first; column < std::min(first + kExactPanel, n_); ++column) {
    float* to = columns_.data() + first * terms_ + (column - first);
    const float* from = b.data + column * b.column_stride;
    for (int64_t l = 0; l < k_; ++l) to[l * kExactPanel] = from[l * b.row_stride];
    if (c != nullptr) to[k_ * kExactPanel] = c[column];
    if (all_finite(to, terms_, kExactPanel)) {
      panel.range = both(panel.range, bit_range(to, terms_, kExactPanel));
    } else {
      panel.special_columns |= 1u << (column - first);
    }
  }
}

// A total of zero is that of all products if they are zeros of one sign.
double ExactProduct::signed_zero(const float* row, int64_t panel, int64_t column, RoundingMode mode) const {
  const bool cancelled_is_negative = mode == RoundingMode::down;
  const float* b = columns_.data() + panel * terms_ * kExactPanel + column;
  for (int64_t l = 0; l < terms_; ++l) {
    const double product = static_cast<double>(row[l]) * b[l * kExactPanel];
    if (product != 0 || std::signbit(product) == cancelled_is_negative) return cancelled_is_negative ? -0.0 : 0.0;
  }
  return cancelled_is_negative || terms_ == 0 ? 0.0 : -0.0;
}

// Where the exponents of the terms lie too far apart.
void ExactProduct::sum_one_by_one(const float* row, int64_t panel, RoundingMode mode, double* sums) const {
  const auto terms = static_cast<size_t>(terms_);
  std::vector<float> column(terms);
  for (int64_t j = 0; j < kExactPanel; ++j) {
    for (size_t l = 0; l < terms; ++l) column[l] = columns_[(static_cast<size_t>(panel) * terms + l) * kExactPanel + j];
    ExactSum sum;
    sum.add_products({row, terms}, column);
    sums[j] = std::bit_cast<double>(encode(binary64, sum.total(mode), {.mode = RoundingMode::to_odd}));
  }
}

void ExactProduct::compute_panel(const float* row, const BitRange& range, bool is_special, int64_t panel, RoundingMode mode,
                                 double* sums) const {
  const float* b = columns_.data() + panel * terms_ * kExactPanel;
  const Panel& of = panels_[static_cast<size_t>(panel)];
  constexpr uint32_t kAll = (1u << kExactPanel) - 1;
  const uint32_t special_columns = is_special ? kAll : of.special_columns;
  if (special_columns != kAll) {
    if (const auto accumulators = exact_accumulators(range * of.range, terms_)) {
      sum_exactly(row, b, terms_, *accumulators, sums);
      for (int64_t j = 0; j < kExactPanel; ++j)
        if (sums[j] == 0) sums[j] = signed_zero(row, panel, j, mode);
    } else {
      sum_one_by_one(row, panel, mode, sums);
    }
  }
  if (special_columns == 0) return;
  // A sum with a NaN or Inf is what FP64 makes of it: products of FP32 numbers, and sums of as many as fit in memory, are finite.
  std::array<double, kExactPanel> special;
  sum_exactly(row, b, terms_, kOneAccumulator, special.data());
  for (int64_t j = 0; j < kExactPanel; ++j)
    if ((special_columns >> j & 1) != 0) sums[j] = std::isnan(special[j]) ? std::numeric_limits<double>::quiet_NaN() : special[j];
}

void ExactProduct::compute(const FloatMatrix& a, double* d, int64_t first, int64_t last, RoundingMode mode) const {
  check_argument(first, "the first row");
  check_argument(last - first, "the number of rows");
  if (first == last || n_ == 0) return;
  check_argument(a.data, k_ > 0, "a");
  check_argument(d, true, "d");
  const FloatingPointMode cpu_mode;
  const int64_t rows = last - first, panels = static_cast<int64_t>(panels_.size());
  std::vector<float> values(static_cast<size_t>(rows * terms_), 1.0f);  // the last one of a row meets c
  struct Row {
    BitRange range;
    bool is_special = false;
  };
  std::vector<Row> infos(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    float* row = values.data() + i * terms_;
    for (int64_t l = 0; l < k_; ++l) row[l] = a.data[(first + i) * a.row_stride + l * a.column_stride];
    Row& of = infos[static_cast<size_t>(i)];
    of.is_special = !all_finite(row, terms_, 1);
    if (!of.is_special) of.range = bit_range(row, terms_, 1);
  }
  std::array<double, kExactPanel> sums;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t column = panel * kExactPanel, columns = std::min(kExactPanel, n_ - column);
    for (int64_t i = 0; i < rows; ++i) {
      const Row& of = infos[static_cast<size_t>(i)];
      compute_panel(values.data() + i * terms_, of.range, of.is_special, panel, mode, sums.data());
      std::copy_n(sums.data(), columns, d + (first + i) * n_ + column);
    }
  }
}

}  // namespace ulpscope
