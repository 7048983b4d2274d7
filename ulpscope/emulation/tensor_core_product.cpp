#include "ulpscope/emulation/tensor_core_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/tensor_core_lanes.h"

namespace ulpscope {

namespace {

// Rows of A that are prepared at a time: each panel of B is read from near memory for all of them.
constexpr int64_t kRows = 16;

bool adds_groups(const TensorCoreModel& model) { return model.scales == BlockScales::mxfp4 || model.scales == BlockScales::nvfp4; }

int bytes_of(const FloatFormat& format) { return format.storage_bits() <= 8 ? 1 : format.storage_bits() <= 16 ? 2 : 4; }

uint32_t load(const EncodedMatrix& matrix, int bytes, int64_t row, int64_t column) {
  const int64_t index = row * matrix.row_stride + column * matrix.column_stride;
  switch (bytes) {
    case 1:
      return static_cast<const uint8_t*>(matrix.data)[index];
    case 2:
      return static_cast<const uint16_t*>(matrix.data)[index];
    default:
      return static_cast<const uint32_t*>(matrix.data)[index];
  }
}

void store(void* data, int bytes, int64_t index, uint32_t encoding) {
  if (bytes == 2) {
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(encoding);
  } else {
    static_cast<uint32_t*>(data)[index] = encoding;
  }
}

// Of FP32's normal exponents.
float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + binary32.bias) << 23); }

// A factor as sum_blocks takes it.
struct LaneFactor {
  float significand = 0;
  int32_t exponent = kExponentOfZero;
  float special = 0;
};

// What decode() makes of a factor, in the form of LaneFactor.
class FactorReader {
 public:
  FactorReader(const TensorCore& core, const FloatFormat& stored)
      : stored_(stored),
        format_(core.model->factors ? *core.model->factors : stored),
        makes_values_(takes_values(core)),
        shift_(&stored == &tensor_float32 ? binary32.fraction_bits - tensor_float32.fraction_bits : 0),
        sign_bit_(static_cast<uint32_t>(format_.sign_bit())),
        last_magnitude_(static_cast<uint32_t>(format_.last_magnitude())),
        largest_(static_cast<uint32_t>(format_.largest_encoding())),
        fraction_bits_(format_.fraction_bits),
        unit_(power_of_two(-format_.fraction_bits)) {}

  LaneFactor operator()(uint32_t encoding) const {
    encoding >>= shift_;
    if (&stored_ != &format_) encoding = static_cast<uint32_t>(convert(stored_, format_, encoding));
    const uint32_t magnitude = encoding & last_magnitude_;
    if (magnitude > largest_) [[unlikely]] {
      const Number number = decode(format_, encoding);
      if (number.kind == Number::Kind::nan) return {.special = std::numeric_limits<float>::quiet_NaN()};
      return {.special = number.negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity()};
    }
    const uint32_t field = magnitude >> fraction_bits_, implicit = 1u << fraction_bits_;
    const uint32_t integer = (magnitude & (implicit - 1)) | (field > 0 ? implicit : 0);
    const int exponent = static_cast<int>(std::max(field, 1u)) - format_.bias;
    const float magnitude_value =
        static_cast<float>(static_cast<int>(integer)) * (makes_values_ ? unit_ * power_of_two(exponent) : unit_);
    LaneFactor factor;
    factor.significand = (encoding & sign_bit_) != 0 ? -magnitude_value : magnitude_value;
    factor.exponent = integer != 0 ? exponent : kExponentOfZero;
    factor.special = factor.significand;
    return factor;
  }

 private:
  const FloatFormat& stored_;
  const FloatFormat& format_;
  const bool makes_values_;
  const int shift_;
  const uint32_t sign_bit_, last_magnitude_, largest_;
  const int fraction_bits_;
  const float unit_;
};

// A power of two that an element has as its scale.
LaneFactor scaled(LaneFactor factor, uint32_t scale) {
  const Number number = decode(e8m0, scale);
  if (number.kind == Number::Kind::nan) return {.special = std::numeric_limits<float>::quiet_NaN()};
  factor.exponent += number.exponent;
  return factor;
}

bool is_special(const LaneFactor& factor) { return !std::isfinite(factor.special); }

void check(const EncodedMatrix& matrix, bool needed, const char* name) {
  if (needed && matrix.data == nullptr) throw usage_error("matrix product: {} is a null pointer", name);
}

void check_extent(int64_t extent, const char* name) {
  if (extent < 0) throw usage_error("matrix product: {} is {}, expected at least 0", name, extent);
}

}  // namespace

struct TensorCoreProduct::PackedRows {
  std::vector<float> significands, specials;
  std::vector<int32_t> exponents;
  std::array<bool, kRows> has_special{};
};

// The element of k that stands there in an instruction's order; beyond k there are zeros.
int64_t TensorCoreProduct::element_at(int64_t position) const {
  const TensorCoreModel& model = *core_.model;
  if (model.passes == 1) return position;
  const int64_t all = model.products_of_instruction(), first = position / all * all, inside = position % all;
  const int64_t pass = inside / model.products, i = inside % model.products;
  return first + i / 2 * 2 * model.passes + 2 * pass + i % 2;
}

TensorCoreProduct::TensorCoreProduct(const TensorCore& core, const EncodedMatrix& b, int64_t k, int64_t n,
                                     const EncodedMatrix& b_scales)
    : core_(core), k_(k), n_(n) {
  const TensorCoreModel& model = *core.model;
  check_extent(k, "k");
  check_extent(n, "n");
  check(b, k > 0 && n > 0, "b");
  const int64_t each = elements_of_scale(model.scales);
  check(b_scales, each > 0 && k > 0 && n > 0, "the scales of b");
  if (each == 0 && b_scales.data != nullptr) throw usage_error("matrix product: b has scales, and the instruction has none");
  const int bytes = bytes_of(*core.b);
  const int64_t all = model.products_of_instruction();
  positions_ = (k + all - 1) / all * all;
  if (adds_groups(model)) {
    for (int64_t column = 0; column < n; ++column) {
      for (int64_t row = 0; row < k; ++row) columns_.push_back(load(b, bytes, row, column));
      for (int64_t row = 0; row < k; row += each)
        column_scales_.push_back(static_cast<uint8_t>(load(b_scales, 1, row / each, column)));
    }
    return;
  }
  const int64_t panels = (n + kPanel - 1) / kPanel;
  significands_.assign(static_cast<size_t>(panels * positions_ * kPanel), 0.0f);
  exponents_.assign(significands_.size(), kExponentOfZero);
  specials_.resize(static_cast<size_t>(panels));
  const FactorReader read(core, *core.b);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t columns = std::min(kPanel, n - panel * kPanel);
    const size_t begin = static_cast<size_t>(panel * positions_ * kPanel);
    std::vector<std::pair<int64_t, float>> specials;
    for (int64_t position = 0; position < positions_; ++position) {
      const int64_t row = element_at(position);
      if (row >= k) continue;
      float* const significands = &significands_[begin + position * kPanel];
      int32_t* const exponents = &exponents_[begin + position * kPanel];
      for (int64_t column = 0; column < columns; ++column) {
        LaneFactor factor = read(load(b, bytes, row, panel * kPanel + column));
        if (each > 0) factor = scaled(factor, load(b_scales, 1, row / each, panel * kPanel + column));
        significands[column] = factor.significand;
        exponents[column] = factor.exponent;
        if (is_special(factor)) [[unlikely]]
          specials.emplace_back(position * kPanel + column, factor.special);
      }
    }
    if (specials.empty()) continue;
    std::vector<float>& all_of_panel = specials_[panel];
    all_of_panel.assign(significands_.begin() + begin, significands_.begin() + begin + positions_ * kPanel);
    for (const auto& [index, value] : specials) all_of_panel[index] = value;
  }
}

void TensorCoreProduct::pack_row(const EncodedMatrix& a, const EncodedMatrix& scales, int64_t row, PackedRows& rows,
                                 int64_t place) const {
  const TensorCoreModel& model = *core_.model;
  const FactorReader read(core_, *core_.a);
  const int bytes = bytes_of(*core_.a);
  const int64_t each = elements_of_scale(model.scales);
  bool any_special = false;
  for (int64_t position = 0; position < positions_; ++position) {
    const int64_t element = element_at(position);
    LaneFactor factor;
    if (element < k_) {
      factor = read(load(a, bytes, row, element));
      if (each > 0) factor = scaled(factor, load(scales, 1, row, element / each));
    }
    const size_t index = static_cast<size_t>(place * positions_ + position);
    rows.significands[index] = factor.significand;
    rows.exponents[index] = factor.exponent;
    rows.specials[index] = factor.special;
    any_special |= is_special(factor);
  }
  rows.has_special[place] = any_special;
}

void TensorCoreProduct::compute_panel(const PackedRows& rows, int64_t place, int count, int64_t panel,
                                      uint32_t* accumulators) const {
  const TensorCoreModel& model = *core_.model;
  std::array<LaneFactors, kLaneRows> factors;
  const auto factors_from = [&](int64_t position) {
    const auto b = static_cast<size_t>((panel * positions_ + position) * kPanel);
    for (int i = 0; i < count; ++i) {
      const auto a = static_cast<size_t>((place + i) * positions_ + position);
      factors[i] = {&rows.significands[a], &rows.exponents[a], &significands_[b], &exponents_[b], nullptr, nullptr};
      if (!rows.has_special[place + i] && specials_[panel].empty()) continue;
      factors[i].a_special = &rows.specials[a];
      factors[i].b_special = specials_[panel].empty() ? &significands_[b] : &specials_[panel][position * kPanel];
    }
    return factors.data();
  };
  if (!model.adds_c_last) {
    if (positions_ > 0) sum_blocks(core_, factors_from(0), count, positions_ / model.products, accumulators);
    return;
  }
  for (int64_t position = 0; position < positions_; position += model.products_of_instruction()) {
    std::array<uint32_t, kLaneRows * kPanel> sums{};
    sum_blocks(core_, factors_from(position), count, model.passes, sums.data());
    for (int64_t i = 0; i < count * kPanel; ++i) accumulators[i] = add_accumulators(*model.output, sums[i], accumulators[i]);
  }
}

void TensorCoreProduct::compute(const EncodedMatrix& a, const EncodedMatrix& c, void* d, int64_t first, int64_t last,
                                const EncodedMatrix& a_scales) const {
  const TensorCoreModel& model = *core_.model;
  check_extent(first, "the first row");
  check_extent(last - first, "the number of rows");
  if (first == last || n_ == 0) return;
  check(a, k_ > 0, "a");
  check({d}, true, "d");
  check(a_scales, model.scales != BlockScales::none && k_ > 0, "the scales of a");
  if (model.scales == BlockScales::none && a_scales.data != nullptr)
    throw usage_error("matrix product: a has scales, and the instruction has none");
  if (adds_groups(model)) return compute_by_dot(a, c, d, first, last, a_scales);

  const int bytes = bytes_of(*model.output);
  PackedRows rows;
  const int64_t most = std::min(kRows, last - first);
  rows.significands.resize(static_cast<size_t>(most * positions_));
  rows.specials.resize(rows.significands.size());
  rows.exponents.resize(rows.significands.size());
  for (int64_t begin = first; begin < last; begin += kRows) {
    const int64_t count = std::min(kRows, last - begin);
    for (int64_t place = 0; place < count; ++place) pack_row(a, a_scales, begin + place, rows, place);
    for (int64_t panel = 0; panel * kPanel < n_; ++panel) {
      const int64_t column = panel * kPanel, columns = std::min(kPanel, n_ - column);
      for (int64_t place = 0; place < count; place += kLaneRows) {
        const auto side_by_side = static_cast<int>(std::min<int64_t>(kLaneRows, count - place));
        std::array<uint32_t, kLaneRows * kPanel> accumulators{};
        for (int i = 0; c.data != nullptr && i < side_by_side; ++i) {
          for (int64_t j = 0; j < columns; ++j) accumulators[i * kPanel + j] = load(c, bytes, begin + place + i, column + j);
        }
        compute_panel(rows, place, side_by_side, panel, accumulators.data());
        for (int i = 0; i < side_by_side; ++i) {
          for (int64_t j = 0; j < columns; ++j)
            store(d, bytes, (begin + place + i) * n_ + column + j, accumulators[i * kPanel + j]);
        }
      }
    }
  }
}

void TensorCoreProduct::compute_by_dot(const EncodedMatrix& a, const EncodedMatrix& c, void* d, int64_t first, int64_t last,
                                       const EncodedMatrix& a_scales) const {
  const TensorCoreModel& model = *core_.model;
  const int64_t each = elements_of_scale(model.scales), scales = (k_ + each - 1) / each;
  const int bytes = bytes_of(*model.output);
  std::vector<uint32_t> row(static_cast<size_t>(k_));
  std::vector<uint8_t> row_scales(static_cast<size_t>(scales));
  for (int64_t i = first; i < last; ++i) {
    for (int64_t element = 0; element < k_; ++element) row[element] = load(a, bytes_of(*core_.a), i, element);
    for (int64_t scale = 0; scale < scales; ++scale) row_scales[scale] = static_cast<uint8_t>(load(a_scales, 1, i, scale));
    for (int64_t j = 0; j < n_; ++j) {
      const std::span<const uint32_t> column(columns_.data() + j * k_, static_cast<size_t>(k_));
      const std::span<const uint8_t> column_scales(column_scales_.data() + j * scales, static_cast<size_t>(scales));
      const uint32_t accumulator = c.data == nullptr ? 0 : load(c, bytes, i, j);
      store(d, bytes, i * n_ + j, dot(core_, row, column, accumulator, {row_scales, column_scales}));
    }
  }
}

void multiply(const TensorCore& core, const EncodedMatrix& a, const EncodedMatrix& b, const EncodedMatrix& c, void* d, int64_t m,
              int64_t n, int64_t k, const MatrixScales& scales) {
  check_extent(m, "m");
  TensorCoreProduct(core, b, k, n, scales.b).compute(a, c, d, 0, m, scales.a);
}

}  // namespace ulpscope
