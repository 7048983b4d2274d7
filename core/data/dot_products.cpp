#include "ulpscope/core/data/dot_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/number_array.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/csv_rows.h"
#include "ulpscope/core/data/gzip_file.h"

namespace ulpscope {

namespace {

using Take = std::function<void(const DotProduct&)>;

std::optional<uint32_t> bit_pattern(std::string_view field) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  return error == std::errc() && end == field.data() + field.size() ? std::optional(value) : std::nullopt;
}

// Letters are hexadecimal digits, so a column's name may look like a short bit pattern.
bool is_name(std::string_view field) {
  const char first = field.empty() ? '0' : field[0];
  const bool begins_as_name = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '_';
  constexpr size_t kDigits = 8;
  return begins_as_name && !(field.size() == kDigits && bit_pattern(field));
}

void read_csv(GzipFile& file, const Take& take) {
  DotProduct row;
  size_t width = 0, rows = 0;
  read_csv_rows(file, ',', [&](int64_t line, const CsvFields& fields) {
    if (fields[0].starts_with('#')) return;
    const bool is_first = width == 0;
    if (is_first) width = fields.size();
    if (fields.size() != width)
      throw unreadable_error("{}:{}: expected {} as in the first row, found {}", file.name(), line, count_of(width, "field"),
                             fields.size());
    if (width < 3) throw unreadable_error("{}:{}: expected a, b and c, at least 3 fields, found {}", file.name(), line, width);
    if (is_first && std::all_of(fields.begin(), fields.end(), is_name)) return;
    const auto bits = [&](size_t column) {
      const std::string_view field = fields[column];
      const std::optional<uint32_t> value = bit_pattern(field);
      if (!value)
        throw unreadable_error("{}:{}:{}: expected an FP32 bit pattern of up to 8 hexadecimal digits, found '{}'", file.name(),
                               line, column + 1, one_line(field.substr(0, 40)));
      return *value;
    };
    const size_t k = (width - 1) / 2;
    row.place = fmt::format("{}:{}", file.name(), line);
    row.a.resize(k);
    row.b.resize(k);
    for (size_t i = 0; i < k; ++i) {
      row.a[i] = bits(i);
      row.b[i] = bits(k + i);
    }
    row.c = bits(2 * k);
    if (width % 2 == 0) row.result = bits(2 * k + 1);
    take(row);
    ++rows;
  });
  if (rows == 0) throw unreadable_error("{}: expected rows of FP32 bit patterns, found none", file.name());
}

constexpr int64_t kMostTerms = 1 << 24;  // of a dot product, which is in memory as a whole

// Rows of numbers of an HDF5 file: values, or encodings of a format.
class Columns {
 public:
  Columns(const std::string& path, const char* name) : array_(path, name) {
    for (size_t i = 1; i < array_.shape().size(); ++i) {
      const int64_t extent = array_.shape()[i];
      if (extent > 0 && width_ > kMostTerms / extent)
        throw unreadable_error("{}: expected rows of at most {} numbers, found {}", label(), kMostTerms,
                               fmt::join(array_.shape(), " x "));
      width_ *= extent;
    }
  }
  Columns(const std::string& path, const char* name, const FloatFormat& format) : Columns(path, name) {
    format_ = &format == &tensor_float32 ? &binary32 : &format;
    const int bits = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(format_->storage_bits(), 8))));
    const hdf5::NumberKind kind = array_.kind();
    if (kind == hdf5::NumberKind::floating_point || (kind == hdf5::NumberKind::unsigned_integer && array_.bits() == bits)) return;
    const char* sign = kind == hdf5::NumberKind::unsigned_integer ? "unsigned" : "signed";
    throw unreadable_error(
        "{}: expected floating-point values, or encodings of {} as unsigned integers of {} bits, found {} integers of {} bits",
        label(), format_->name, bits, sign, array_.bits());
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
  // As an FP32 bit pattern.
  uint32_t bits(int64_t row, size_t element) const {
    const double value = values_[element];
    if (array_.kind() == hdf5::NumberKind::unsigned_integer) {
      const auto encoding = static_cast<uint64_t>(value);
      if (encoding >> format_->storage_bits() != 0)
        throw unreadable_error("{}, row {}, element {}: expected an encoding of {}, of {} bits, found 0x{:X}", label(), row,
                               element, format_->name, format_->storage_bits(), encoding);
      return static_cast<uint32_t>(convert(*format_, binary32, encoding));
    }
    const auto single = static_cast<float>(value);
    if (!std::isnan(value) && static_cast<double>(single) != value)
      throw unreadable_error("{}, row {}, element {}: expected a number that FP32 holds, found {}", label(), row, element, value);
    return std::bit_cast<uint32_t>(single);
  }

 private:
  hdf5::NumberArray array_;
  const FloatFormat* format_ = nullptr;  // none of scales, which are encodings of whatever kind their numbers are
  int64_t width_ = 1;
  std::vector<double> values_;
};

void read_hdf5(const std::string& path, const TensorCore& core, const Take& take) {
  const bool has_scales = core.model->scales != BlockScales::none;
  const std::vector<std::string> names = hdf5::data_set_names(path);
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const auto need = [&](const char* name, std::string_view all) {
    if (!has(name))
      throw unreadable_error("{} has no data set {}: expected {}, found {}", path, name, all,
                             names.empty() ? "none" : one_line(join_words(names)));
  };
  for (const char* name : {"a", "b", "c"}) need(name, "a, b, c and perhaps d");
  if (has_scales)
    for (const char* name : {"a_scale", "b_scale"}) need(name, "a_scale and b_scale beside a, b and c");
  if (!has_scales && (has("a_scale") || has("b_scale")))
    throw usage_error("{} has scales, a_scale and b_scale: expected to know of which kind", path);
  const FloatFormat& output = *core.model->output;
  Columns a(path, "a", *core.a), b(path, "b", *core.b), c(path, "c", output);
  std::optional<Columns> d, a_scale, b_scale;
  if (has("d")) d.emplace(path, "d", output);
  if (has_scales) {
    a_scale.emplace(path, "a_scale");
    b_scale.emplace(path, "b_scale");
  }
  const auto check = [&](const Columns& columns, int64_t width, const std::string& reason = "as a has rows") {
    if (columns.rows() != a.rows() || columns.width() != width)
      throw unreadable_error("{}: expected {} of {} {}, found {} of {}", columns.label(), count_of(a.rows(), "row"), width, reason,
                             columns.rows(), columns.width());
  };
  if (a.rows() == 0) throw unreadable_error("{}: expected rows of numbers, found none", a.label());
  check(b, a.width());
  check(c, 1);
  if (d) check(*d, 1);
  if (has_scales) {
    const int64_t each = elements_of_scale(core.model->scales), scales = (a.width() + each - 1) / each;
    for (const Columns* columns : {&*a_scale, &*b_scale})
      check(*columns, scales, fmt::format("scales, one for {} elements of {} in a row", each, a.width()));
  }
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

void read_dot_products(const std::string& path, const TensorCore& core, const std::function<void(const DotProduct&)>& take) {
  GzipFile file(path, "CSV or HDF5 data");
  constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
  const std::span<const uint8_t> head = file.peek(kHdf5Signature.size());
  if (head.size() == kHdf5Signature.size() && std::memcmp(head.data(), kHdf5Signature.data(), head.size()) == 0) {
    if (file.is_compressed()) throw unreadable_error("{}: HDF5 data within gzip, expected the HDF5 file itself", file.name());
    if (!file.is_seekable())
      throw unreadable_error("{}: HDF5 data in a pipe, expected a file, as they are not read in order", file.name());
    return read_hdf5(path == "-" ? "/dev/stdin" : path, core, take);
  }
  if (core.model->scales != BlockScales::none)
    throw usage_error("{} is CSV, which has no scales: expected HDF5 with data sets a_scale and b_scale", file.name());
  read_csv(file, take);
}

}  // namespace ulpscope
