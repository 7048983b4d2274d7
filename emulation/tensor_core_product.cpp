#include "ulpscope/emulation/tensor_core_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/tensor_core_lanes.h"

namespace ulpscope {

namespace {

// Rows of A that are prepared at a time: each panel of B is read from near memory for all of them.
constexpr int64_t kRows = 16;

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

// What decode() makes of factors, in the form that sum_blocks takes.
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

  // Of `count` encodings, written so that compilers make vectors of it. Whether all of them are numbers: where one is not, its
  // place holds nothing of use, and special() tells.
  bool read(const uint32_t* encodings, int64_t count, float* significands, int32_t* exponents) const {
    const uint32_t implicit = 1u << fraction_bits_;
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t encoding = factor_of(encodings[i]), magnitude = encoding & last_magnitude_;
      largest = std::max(largest, magnitude);
      const uint32_t field = magnitude >> fraction_bits_;
      const uint32_t integer = (magnitude & (implicit - 1)) | (field > 0 ? implicit : 0);
      const int exponent = static_cast<int>(std::max(field, 1u)) - format_.bias;
      const float value = static_cast<float>(static_cast<int>(integer)) * (makes_values_ ? unit_ * power_of_two(exponent) : unit_);
      const uint32_t sign = (encoding & sign_bit_) != 0 ? 0x80000000 : 0;
      significands[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
      exponents[i] = integer != 0 ? exponent : kExponentOfZero;
    }
    return largest <= largest_;
  }

  // Inf or NaN; nothing of numbers.
  std::optional<float> special(uint32_t encoding) const {
    encoding = factor_of(encoding);
    if ((encoding & last_magnitude_) <= largest_) return {};
    const Number number = decode(format_, encoding);
    if (number.kind == Number::Kind::nan) return std::numeric_limits<float>::quiet_NaN();
    return number.negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }

 private:
  uint32_t factor_of(uint32_t encoding) const {
    encoding >>= shift_;
    return &stored_ == &format_ ? encoding : static_cast<uint32_t>(convert(stored_, format_, encoding));
  }

  const FloatFormat& stored_;
  const FloatFormat& format_;
  const bool makes_values_;
  const int shift_;
  const uint32_t sign_bit_, last_magnitude_, largest_;
  const int fraction_bits_;
  const float unit_;
};

// A scale of a group; its significand is in [1, 2) or less, or NaN.
struct ScaleFactor {
  float significand;
  int32_t exponent;
};
ScaleFactor read_scale_factor(BlockScales scales, uint8_t encoding) {
  const FloatFormat& format = format_of_scale(scales);
  const Number number = decode_scale(scales, encoding);
  if (number.kind == Number::Kind::nan) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (number.kind == Number::Kind::zero) return {0, kExponentOfZero};
  return {static_cast<float>(number.significand) * power_of_two(-format.fraction_bits), number.exponent + format.fraction_bits};
}

// Factors in a line, as sum_blocks takes them, and which of them are Inf or NaN.
class FactorLine {
 public:
  // `encodings` and, where the model has scales, `scales` of each factor. Specials have significands of zero.
  void read(const FactorReader& reader, std::span<const uint32_t> encodings, std::span<const uint8_t> scales, float* significands,
            int32_t* exponents) {
    specials.clear();
    const bool all_numbers = reader.read(encodings.data(), static_cast<int64_t>(encodings.size()), significands, exponents);
    if (all_numbers && scales.empty()) return;
    for (size_t i = 0; i < encodings.size(); ++i) {
      std::optional<float> special = reader.special(encodings[i]);
      if (!scales.empty()) {
        const Number scale = decode_scale(BlockScales::mx, scales[i]);
        exponents[i] += scale.exponent;  // of a power of two
        if (scale.kind == Number::Kind::nan) special = std::numeric_limits<float>::quiet_NaN();
      }
      if (!special) continue;
      significands[i] = 0;
      exponents[i] = kExponentOfZero;
      specials.emplace_back(i, *special);
    }
  }
  std::vector<std::pair<size_t, float>> specials;  // place, value
};

void check_matrix(const EncodedMatrix& matrix, bool needed, const char* name) {
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
  PackedGroups groups;  // instead
};

void TensorCoreProduct::PackedGroups::resize(size_t lines, int64_t positions) {
  const size_t groups = lines * static_cast<size_t>(positions) / kProductsOfGroup;
  elements.resize(groups * kProductsOfGroup);
  scales.resize(groups);
  exponents.resize(groups, kExponentOfZero);
  nonzero.resize(groups);
}

// Lines of factors, rows of A or columns of B, by their number and that of an element.
struct TensorCoreProduct::Factors {
  const FloatFormat& format;
  EncodedMatrix matrix, scales;
  bool are_columns;

  uint32_t element(int64_t line, int64_t k) const { return at(matrix, bytes_of(format), line, k); }
  uint8_t scale(int64_t line, int64_t index) const { return static_cast<uint8_t>(at(scales, 1, line, index)); }

 private:
  uint32_t at(const EncodedMatrix& from, int bytes, int64_t line, int64_t k) const {
    return are_columns ? load(from, bytes, k, line) : load(from, bytes, line, k);
  }
};

// `count` lines from `first` on, side by side in `lanes`, after `place` such bundles. What no line fills stays zero.
void TensorCoreProduct::pack_groups(const Factors& factors, int64_t first, int64_t count, int64_t lanes, PackedGroups& groups,
                                    int64_t place) const {
  const TensorCoreModel& model = *core_.model;
  const FloatFormat& format = factors.format;
  const int64_t each = elements_of_scale(model.scales), of_line = positions_ / kProductsOfGroup;
  for (int64_t line = 0; line < count; ++line) {
    for (int64_t group = 0; group < of_line; ++group) {
      const int64_t index = (place * of_line + group) * lanes + line, begin = group * kProductsOfGroup;
      if (begin >= k_) break;
      uint32_t nonzero = 0;
      for (int64_t i = 0; i < std::min<int64_t>(kProductsOfGroup, k_ - begin); ++i) {
        const Number number = decode(format, factors.element(first + line, begin + i));
        const auto magnitude = number.kind == Number::Kind::zero
                                   ? 0
                                   : static_cast<int>(number.significand << (number.exponent - format.smallest_exponent()));
        nonzero |= (magnitude != 0 ? 1u : 0u) << i;
        const int64_t pair = (place * of_line + group) * (kProductsOfGroup / 2) + i / 2;
        groups.elements[2 * (pair * lanes + line) + i % 2] = static_cast<int16_t>(number.negative ? -magnitude : magnitude);
      }
      groups.nonzero[index] = nonzero;
      const ScaleFactor scale = read_scale_factor(model.scales, factors.scale(first + line, begin / each));
      groups.scales[index] = scale.significand;
      groups.exponents[index] = scale.exponent;
    }
  }
}

// The element of k that stands there in an instruction's order; beyond k there are zeros.
int64_t TensorCoreProduct::element_at(int64_t position) const {
  const TensorCoreModel& model = *core_.model;
  if (model.passes == 1) return position;
  const int64_t all = model.products_of_instruction(), first = position / all * all, inside = position % all;
  const int64_t pass = inside / model.products, i = inside % model.products;
  return first + i / 2 * 2 * model.passes + 2 * pass + i % 2;
}

TensorCoreProduct::TensorCoreProduct(const TensorCore& core, const EncodedMatrix& b, int64_t k, int64_t n,
                                     const EncodedMatrix& b_scales, const ParallelFor& parallel_for)
    : core_(core), k_(k), n_(n) {
  const TensorCoreModel& model = *core.model;
  check_extent(k, "k");
  check_extent(n, "n");
  check_matrix(b, k > 0 && n > 0, "b");
  const int64_t each = elements_of_scale(model.scales);
  check_matrix(b_scales, each > 0 && k > 0 && n > 0, "the scales of b");
  if (each == 0 && b_scales.data != nullptr) throw usage_error("matrix product: b has scales, and the instruction has none");
  const int64_t all = model.products_of_instruction();
  positions_ = (k + all - 1) / all * all;
  const int64_t panels = (n + kPanel - 1) / kPanel;
  if (model.adds_groups()) {
    groups_.resize(static_cast<size_t>(panels * kPanel), positions_);
    parallel_for(panels, [&](int64_t panel) {
      const int64_t first = panel * kPanel;
      pack_groups({*core.b, b, b_scales, true}, first, std::min(kPanel, n - first), kPanel, groups_, panel);
    });
    return;
  }
  const auto factors = static_cast<size_t>(panels * positions_ * kPanel);
  significands_ = std::make_unique_for_overwrite<float[]>(factors);
  exponents_ = std::make_unique_for_overwrite<int32_t[]>(factors);
  specials_.resize(static_cast<size_t>(panels));
  parallel_for(panels, [&](int64_t panel) { pack_panel(b, b_scales, panel); });
}

void TensorCoreProduct::pack_panel(const EncodedMatrix& b, const EncodedMatrix& scales, int64_t panel) {
  const FactorReader read(core_, *core_.b);
  const int bytes = bytes_of(*core_.b);
  const int64_t each = elements_of_scale(core_.model->scales), columns = std::min(kPanel, n_ - panel * kPanel);
  const size_t begin = static_cast<size_t>(panel * positions_ * kPanel);
  std::fill_n(&significands_[begin], positions_ * kPanel, 0.0f);
  std::fill_n(&exponents_[begin], positions_ * kPanel, kExponentOfZero);
  FactorLine line;
  std::vector<std::pair<size_t, float>> specials;
  for (int64_t position = 0; position < positions_; ++position) {
    const int64_t row = element_at(position);
    if (row >= k_) continue;
    std::array<uint32_t, kPanel> encodings;
    std::array<uint8_t, kPanel> of_columns;
    for (int64_t column = 0; column < columns; ++column) encodings[column] = load(b, bytes, row, panel * kPanel + column);
    for (int64_t column = 0; each > 0 && column < columns; ++column)
      of_columns[column] = static_cast<uint8_t>(load(scales, 1, row / each, panel * kPanel + column));
    const auto count = static_cast<size_t>(columns), place = static_cast<size_t>(position * kPanel);
    line.read(read, {encodings.data(), count}, {of_columns.data(), each > 0 ? count : 0}, &significands_[begin + place],
              &exponents_[begin + place]);
    for (const auto& [column, value] : line.specials) specials.emplace_back(place + column, value);
  }
  if (specials.empty()) return;
  std::vector<float>& all_of_panel = specials_[panel];
  all_of_panel.assign(&significands_[begin], &significands_[begin] + positions_ * kPanel);
  for (const auto& [index, value] : specials) all_of_panel[index] = value;
}

void TensorCoreProduct::pack_row(const EncodedMatrix& a, const EncodedMatrix& scales, int64_t row, PackedRows& rows,
                                 int64_t place) const {
  const TensorCoreModel& model = *core_.model;
  if (model.adds_groups()) return pack_groups({*core_.a, a, scales, false}, row, 1, 1, rows.groups, place);
  const FactorReader read(core_, *core_.a);
  const int bytes = bytes_of(*core_.a);
  const int64_t each = elements_of_scale(model.scales);
  const auto count = static_cast<size_t>(positions_), begin = static_cast<size_t>(place) * count;
  std::vector<uint32_t> encodings(count, 0);
  std::vector<uint8_t> element_scales(each > 0 ? count : 0, 0);
  for (int64_t position = 0; position < positions_; ++position) {
    const int64_t element = element_at(position);
    if (element >= k_) continue;
    encodings[position] = load(a, bytes, row, element);
    if (each > 0) element_scales[position] = static_cast<uint8_t>(load(scales, 1, row, element / each));
  }
  FactorLine line;
  line.read(read, encodings, element_scales, rows.significands.data() + begin,
            rows.exponents.data() + begin);  // none, where k is 0
  rows.has_special[place] = !line.specials.empty();
  if (line.specials.empty()) return;
  std::copy_n(&rows.significands[begin], count, &rows.specials[begin]);
  for (const auto& [position, value] : line.specials) rows.specials[begin + position] = value;
}

// From a line on, or from the first of a panel's.
LaneGroups TensorCoreProduct::lane_groups(const PackedGroups& groups, int64_t line) const {
  const auto first = static_cast<size_t>(line * positions_ / kProductsOfGroup);
  return {groups.elements.data() + first * kProductsOfGroup, groups.scales.data() + first, groups.exponents.data() + first,
          groups.nonzero.data() + first};
}

void TensorCoreProduct::compute_panel(const PackedRows& rows, int64_t place, int count, int64_t panel,
                                      uint32_t* accumulators) const {
  const TensorCoreModel& model = *core_.model;
  if (model.adds_groups()) {
    const LaneGroups b = lane_groups(groups_, panel * kPanel);
    for (int i = 0; i < count; ++i)
      sum_groups(core_, lane_groups(rows.groups, place + i), b, positions_ / model.products, accumulators + i * kPanel);
    return;
  }
  std::array<LaneFactors, kLaneRows> factors;
  const auto factors_from = [&](int64_t position) {
    const auto b = static_cast<size_t>((panel * positions_ + position) * kPanel);
    for (int i = 0; i < count; ++i) {
      const auto a = static_cast<size_t>((place + i) * positions_ + position);
      factors[i] = {&rows.significands[a], &rows.exponents[a], &significands_[b], &exponents_[b], nullptr, nullptr};
      if (!rows.has_special[place + i] && specials_[panel].empty()) continue;
      factors[i].a_special = rows.has_special[place + i] ? &rows.specials[a] : &rows.significands[a];
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
  check_matrix(a, k_ > 0, "a");
  check_matrix({d}, true, "d");
  check_matrix(a_scales, model.scales != BlockScales::none && k_ > 0, "the scales of a");
  if (model.scales == BlockScales::none && a_scales.data != nullptr)
    throw usage_error("matrix product: a has scales, and the instruction has none");

  const int bytes = bytes_of(*model.output);
  PackedRows rows;
  const int64_t most = std::min(kRows, last - first);
  if (model.adds_groups()) {
    rows.groups.resize(static_cast<size_t>(most), positions_);
  } else {
    rows.significands.resize(static_cast<size_t>(most * positions_));
    rows.specials.resize(rows.significands.size());
    rows.exponents.resize(rows.significands.size());
  }
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

void multiply(const TensorCore& core, const EncodedMatrix& a, const EncodedMatrix& b, const EncodedMatrix& c, void* d, int64_t m,
              int64_t n, int64_t k, const MatrixScales& scales) {
  check_extent(m, "m");
  TensorCoreProduct(core, b, k, n, scales.b).compute(a, c, d, 0, m, scales.a);
}

}  // namespace ulpscope
