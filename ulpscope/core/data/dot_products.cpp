#include "ulpscope/core/data/dot_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/hdf5/number_array.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/csv_rows.h"

namespace ulpscope {

namespace {

using Take = std::function<void(const DotProduct&)>;

void read_csv(const std::string& path, const Take& take) {
  DotProduct row;
  size_t width = 0;
  read_csv_rows(path, ',', [&](int64_t line, const CsvFields& fields) {
    if (fields[0].starts_with('#')) return;
    if (width == 0) width = fields.size();
    if (fields.size() != width)
      throw unreadable_error("{}:{}: expected {} as in the first row, found {}", path, line, count_of(width, "field"),
                             fields.size());
    if (width < 3) throw unreadable_error("{}:{}: expected a, b and c, at least 3 fields, found {}", path, line, width);
    const auto bits = [&](size_t column) {
      const std::string_view field = fields[column];
      uint32_t value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
      if (error != std::errc() || end != field.data() + field.size())
        throw unreadable_error("{}:{}:{}: expected an FP32 bit pattern of up to 8 hexadecimal digits, found '{}'", path, line,
                               column + 1, one_line(field.substr(0, 40)));
      return value;
    };
    const size_t k = (width - 1) / 2;
    row.place = fmt::format("{}:{}", path, line);
    row.a.resize(k);
    row.b.resize(k);
    for (size_t i = 0; i < k; ++i) {
      row.a[i] = bits(i);
      row.b[i] = bits(k + i);
    }
    row.c = bits(2 * k);
    if (width % 2 == 0) row.result = bits(2 * k + 1);
    take(row);
  });
  if (width == 0) throw unreadable_error("{}: expected rows of FP32 bit patterns, found none", path);
}

// Rows of numbers of an HDF5 file.
class Columns {
 public:
  Columns(const std::string& path, const char* name) : array_(path, name) {
    for (size_t i = 1; i < array_.shape().size(); ++i) width_ *= array_.shape()[i];
  }
  const std::string& label() const { return array_.label(); }
  int64_t rows() const { return array_.shape()[0]; }
  int64_t width() const { return width_; }
  // They stay until the next call.
  const std::vector<double>& row(int64_t index) {
    values_.resize(static_cast<size_t>(width_));
    array_.read_rows(index, 1, values_.data());
    return values_;
  }
  uint32_t bits(int64_t row, size_t element) const {
    const double value = values_[element];
    const auto single = static_cast<float>(value);
    if (!std::isnan(value) && static_cast<double>(single) != value)
      throw unreadable_error("{}, row {}, element {}: expected a number that FP32 holds, found {}", label(), row, element, value);
    return std::bit_cast<uint32_t>(single);
  }

 private:
  hdf5::NumberArray array_;
  int64_t width_ = 1;
  std::vector<double> values_;
};

void read_hdf5(const std::string& path, bool has_scales, const Take& take) {
  const std::vector<std::string> names = hdf5::data_set_names(path);
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (!has_scales && (has("a_scale") || has("b_scale")))
    throw usage_error("{} has scales, a_scale and b_scale: expected to know of which kind", path);
  Columns a(path, "a"), b(path, "b"), c(path, "c");
  std::optional<Columns> d, a_scale, b_scale;
  if (has("d")) d.emplace(path, "d");
  if (has_scales) {
    a_scale.emplace(path, "a_scale");
    b_scale.emplace(path, "b_scale");
  }
  const auto check = [&](const Columns& columns, int64_t width) {
    if (columns.rows() != a.rows() || columns.width() != width)
      throw unreadable_error("{}: expected {} of {} as a has rows, found {} of {}", columns.label(), count_of(a.rows(), "row"),
                             width, columns.rows(), columns.width());
  };
  if (a.rows() == 0) throw unreadable_error("{}: expected rows of numbers, found none", a.label());
  check(b, a.width());
  check(c, 1);
  if (d) check(*d, 1);
  if (b_scale) check(*b_scale, a_scale->width());
  DotProduct row;
  for (int64_t index = 0; index < a.rows(); ++index) {
    row.place = fmt::format("{}, row {}", path, index);
    const auto fill = [&](Columns& columns, std::vector<uint32_t>& out) {
      columns.row(index);
      out.resize(static_cast<size_t>(columns.width()));
      for (size_t i = 0; i < out.size(); ++i) out[i] = columns.bits(index, i);
    };
    const auto single = [&](Columns& columns) {
      columns.row(index);
      return columns.bits(index, 0);
    };
    const auto scales = [&](Columns& columns, std::vector<uint8_t>& out) {
      out.clear();
      for (const double value : columns.row(index)) {
        if (!(value >= 0 && value <= 255 && value == std::floor(value)))
          throw unreadable_error("{}, row {}: expected encodings from 0 to 255, found {}", columns.label(), index, value);
        out.push_back(static_cast<uint8_t>(value));
      }
    };
    fill(a, row.a);
    fill(b, row.b);
    row.c = single(c);
    if (d) row.result = single(*d);
    if (a_scale) scales(*a_scale, row.a_scales);
    if (b_scale) scales(*b_scale, row.b_scales);
    take(row);
  }
}

}  // namespace

void read_dot_products(const std::string& path, bool has_scales, const std::function<void(const DotProduct&)>& take) {
  constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
  if (first_bytes(path, kHdf5Signature.size()) == kHdf5Signature) return read_hdf5(path, has_scales, take);
  if (has_scales) throw usage_error("{} is CSV, which has no scales: expected HDF5 with data sets a_scale and b_scale", path);
  read_csv(path, take);
}

}  // namespace ulpscope
