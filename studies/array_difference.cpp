#include "ulpscope/studies/array_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

constexpr size_t kChunk = size_t{1} << 16;

size_t bytes_of(const FloatFormat& format) { return static_cast<size_t>(format.storage_bits() + 7) / 8; }

// Gives the format of numbers of a type that NumPy writes so; nullptr: they have none.
const FloatFormat* format_of(const NumberType& type, const FloatFormat* encodings) {
  if (type.kind == 'f') {
    for (const FloatFormat* format : {&binary16, &binary32, &binary64})
      if (bytes_of(*format) == type.bytes) return format;
  } else if ((type.kind == 'V' || type.kind == 'u') && encodings != nullptr && bytes_of(*encodings) == type.bytes) {
    return encodings;
  }
  return nullptr;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a single value" : fmt::format("{}", fmt::join(shape, " x "));
}

// "[2, 0, 5]" of an element in C order.
std::string element_text(size_t element, const std::vector<int64_t>& shape) {
  std::vector<size_t> places;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    places.push_back(element % static_cast<size_t>(*extent));
    element /= static_cast<size_t>(*extent);
  }
  std::reverse(places.begin(), places.end());
  return fmt::format("[{}]", fmt::join(places, ", "));
}

bool are_equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool is_subnormal(const FloatFormat& format, double x) { return x != 0 && std::fabs(x) < format.smallest_normal(); }

// One array beside the numbers that it is held against.
struct Side {
  uint64_t nan = 0, infinite = 0, subnormal = 0;
  uint64_t mismatched = 0;       // NaN or Inf where the other side is not, or the reverse
  ErrorMeasures errors;          // of the others
  std::vector<uint64_t> ranges;  // of errors: 0, up to 1/2 ulp, up to 1, 2, 4, ...

  void see(const FloatFormat& format, double x) {
    nan += std::isnan(x);
    infinite += std::isinf(x);
    subnormal += is_subnormal(format, x);
  }
  double add(const FloatFormat& format, double computed, double against) {
    const double ulps = errors.add(format, computed, against);
    size_t range = 0;
    if (ulps > 0) {
      int exponent = 0;
      const double fraction = std::frexp(ulps, &exponent);  // in [1/2, 1), so that 2^exponent is above
      range = static_cast<size_t>(std::max(fraction == 0.5 ? exponent - 1 : exponent, -1) + 2);
    }
    if (ranges.size() <= range) ranges.resize(range + 1);
    ++ranges[range];
    return ulps;
  }
  double norm() const { return std::sqrt(errors.noise); }
};

struct Worst {
  size_t element;
  double exact, candidate, reference, ulps, reference_ulps;
};

std::string range_text(size_t range) {
  if (range == 0) return "0";
  return range == 1 ? "up to 0.5" : fmt::format("up to {}", std::ldexp(1.0, static_cast<int>(range) - 2));
}

class Comparison {
 public:
  Comparison(const NumberArray& candidate, const NumberArray& reference, const NumberArray* exact, const FloatFormat& format,
             size_t limit)
      : a_(candidate), b_(reference), exact_(exact), format_(format), limit_(limit) {
    const FloatingPointMode mode;
    std::vector<double> a(std::min(kChunk, a_.size())), b(a.size()), exact_numbers(exact_ == nullptr ? 0 : a.size());
    for (size_t first = 0; first < a_.size(); first += a.size()) {
      const size_t count = std::min(a.size(), a_.size() - first);
      a_.read(first, std::span(a).first(count));
      b_.read(first, std::span(b).first(count));
      if (exact_ != nullptr) exact_->read(first, std::span(exact_numbers).first(count));
      for (size_t i = 0; i < count; ++i) {
        if (exact_ == nullptr) {
          take(first + i, a[i], b[i]);
        } else {
          take(first + i, a[i], b[i], exact_numbers[i]);
        }
      }
    }
    std::sort_heap(worst_.begin(), worst_.end(), is_worse);
  }

  ArrayDifference result() && {
    ArrayDifference result;
    result.made_nonfinite = made_nonfinite_;
    Report& report = result.report;
    report.analysis = "diff";
    report.title = exact_ == nullptr ? fmt::format("{} beside {}", a_.path(), b_.path())
                                     : fmt::format("{} and {} beside {}", a_.path(), b_.path(), exact_->path());
    report.add_fact("format", std::string(format_.name));
    report.add_fact("shape", shape_text(a_.shape()));
    report.add_fact("elements", count_cell(a_.size()), Unit::count);
    report.add_fact("equal", count_cell(equal_), Unit::count);
    report.add_fact("made_nonfinite", count_cell(made_nonfinite_), Unit::count);
    if (foreign_ > 0) report.add_fact("not_in_format", count_cell(foreign_), Unit::count);
    if (exact_ != nullptr) {
      result.candidate_error = candidate_.norm();
      result.reference_error = reference_.norm();
      result.rounding_bound = std::sqrt(rounding_bound_);
      report.add_fact("error_ratio",
                      result.reference_error > 0 ? Cell(result.candidate_error / result.reference_error) : Cell(NotApplicable{}),
                      Unit::ratio);
      report.add_fact("judged_ratio", result.judged_ratio(), Unit::ratio);
    }
    report.tables = {errors(), ranges()};
    if (!worst_.empty()) report.tables.push_back(worst());
    return result;
  }

 private:
  // A heap with the least bad on top.
  static bool is_worse(const Worst& x, const Worst& y) { return x.ulps != y.ulps ? x.ulps > y.ulps : x.element < y.element; }

  void see(double a, double b) {
    candidate_.see(format_, a);
    reference_.see(format_, b);
    equal_ += are_equal(a, b);
    made_nonfinite_ += !std::isfinite(a) && std::isfinite(b);
    foreign_ += std::isfinite(a) && round_to(a) != a;
    for (const double x : {a, b}) {
      if (!std::isfinite(x)) continue;
      fits_f16_ = fits_f16_ && round_to(binary16, x) == x;
      fits_bf16_ = fits_bf16_ && round_to(bfloat16, x) == x;
    }
  }
  static double round_to(const FloatFormat& format, double x) { return value_of(format, round_to_encoding(format, x)); }
  double round_to(double x) const { return round_to(format_, x); }

  void take(size_t element, double a, double b) {
    see(a, b);
    if (std::isfinite(a) && std::isfinite(b)) {
      keep({element, b, a, b, candidate_.add(format_, a, b), 0});
    } else if (!are_equal(a, b)) {
      ++candidate_.mismatched;
      keep({element, b, a, b, HUGE_VAL, 0});
    }
  }
  void take(size_t element, double a, double b, double exact) {
    see(a, b);
    const double rounded = round_to(exact);
    rounded_.see(format_, rounded);
    if (std::isfinite(a) && std::isfinite(b) && std::isfinite(rounded)) {
      rounded_.add(format_, rounded, exact);
      rounding_bound_ += ulp(format_, exact) * ulp(format_, exact) / 4;
      const double reference_ulps = reference_.add(format_, b, exact);
      keep({element, exact, a, b, candidate_.add(format_, a, exact), reference_ulps});
      return;
    }
    const auto mismatch = [&](double x) { return !(std::isfinite(x) && std::isfinite(rounded)) && !are_equal(x, rounded); };
    candidate_.mismatched += mismatch(a);
    reference_.mismatched += mismatch(b);
    const auto ulps = [&](double x) {
      if (mismatch(x)) return HUGE_VAL;
      return std::isfinite(x) ? std::fabs(x - exact) / ulp(format_, exact) : 0;
    };
    keep({element, exact, a, b, ulps(a), ulps(b)});
  }
  void keep(const Worst& each) {
    if (!(each.ulps > 0)) return;
    ++off_;
    if (limit_ > 0 && worst_.size() == limit_) {
      if (!is_worse(each, worst_.front())) return;
      std::pop_heap(worst_.begin(), worst_.end(), is_worse);
      worst_.pop_back();
    }
    worst_.push_back(each);
    std::push_heap(worst_.begin(), worst_.end(), is_worse);
  }

  Table errors() const {
    Table table{"errors",
                exact_ == nullptr ? "How far the candidate is from the reference" : "How far each is from the exact numbers",
                {{"numbers", ColumnKind::text},
                 {"relative_error"},
                 {"over_rounded", ColumnKind::number, Unit::ratio},
                 {"largest_ulps"},
                 {"mean_ulps"},
                 {"signal_to_noise_db"},
                 {"nan", ColumnKind::number, Unit::count},
                 {"infinite", ColumnKind::number, Unit::count},
                 {"subnormal", ColumnKind::number, Unit::count},
                 {"mismatched", ColumnKind::number, Unit::count}},
                {},
                0,
                "Errors are over the elements that are finite everywhere. Mismatched: NaN or Inf on one side alone."};
    if (exact_ == nullptr) table.columns.erase(table.columns.begin() + 2);
    const auto row = [&](std::string name, const Side& side, bool has_errors) {
      std::vector<Cell> cells{std::move(name)};
      const auto number = [&](double value) { cells.push_back(has_errors ? Cell(value) : Cell(NotApplicable{})); };
      number(side.errors.signal > 0 ? std::sqrt(side.errors.noise / side.errors.signal) : side.errors.noise > 0 ? HUGE_VAL : 0);
      if (exact_ != nullptr) cells.push_back(rounded_.norm() > 0 ? Cell(side.norm() / rounded_.norm()) : Cell(NotApplicable{}));
      number(side.errors.largest_ulp);
      number(side.errors.mean_ulp());
      number(side.errors.signal_to_noise());
      for (const uint64_t count : {side.nan, side.infinite, side.subnormal}) cells.push_back(count_cell(count));
      cells.push_back(has_errors ? count_cell(side.mismatched) : Cell(NotApplicable{}));
      table.rows.push_back({{}, std::move(cells)});
    };
    row("candidate", candidate_, true);
    row("reference", reference_, exact_ != nullptr);
    if (exact_ != nullptr) row(fmt::format("exact, rounded to {}", format_.name), rounded_, true);
    return table;
  }

  Table ranges() const {
    Table table{"ulps", fmt::format("Errors in ulps of {}", format_.name), {{"error", ColumnKind::text}}, {}, 0, ""};
    const FloatFormat* const narrower = fits_bf16_ ? &bfloat16 : fits_f16_ ? &binary16 : nullptr;
    if (narrower != nullptr && narrower->fraction_bits < format_.fraction_bits)
      table.note = fmt::format("All numbers of both are numbers of {0}: --format {0} counts in its ulps.", narrower->name);
    std::vector<const Side*> sides{&candidate_};
    table.columns.push_back({"candidate", ColumnKind::number, Unit::count});
    if (exact_ != nullptr) {
      table.columns.push_back({"reference", ColumnKind::number, Unit::count});
      table.columns.push_back({"rounded", ColumnKind::number, Unit::count});
      sides = {&candidate_, &reference_, &rounded_};
    }
    size_t count = 0;
    for (const Side* side : sides) count = std::max(count, side->ranges.size());
    for (size_t range = 0; range < count; ++range) {
      std::vector<Cell> cells{range_text(range)};
      for (const Side* side : sides) cells.push_back(count_cell(range < side->ranges.size() ? side->ranges[range] : 0));
      table.rows.push_back({{}, std::move(cells)});
    }
    return table;
  }

  Table worst() const {
    Table table{"worst", "Elements where the candidate is farthest off", {{"element", ColumnKind::text}}, {}, off_ - worst_.size(),
                ""};
    if (exact_ != nullptr) table.columns.push_back({"exact", ColumnKind::text});
    for (const char* name : {"candidate", "reference"}) table.columns.push_back({name, ColumnKind::text});
    table.columns.push_back({"ulps"});
    if (exact_ != nullptr) table.columns.push_back({"reference_ulps"});
    for (const Worst& each : worst_) {
      std::vector<Cell> cells{element_text(each.element, a_.shape())};
      if (exact_ != nullptr) cells.push_back(number(each.exact, *exact_));
      cells.push_back(number(each.candidate, a_));
      cells.push_back(number(each.reference, b_));
      cells.push_back(each.ulps);
      if (exact_ != nullptr) cells.push_back(each.reference_ulps);
      table.rows.push_back({{}, std::move(cells)});
    }
    return table;
  }
  static Cell number(double value, const NumberArray& of) {
    const Number exact = decode(binary64, std::bit_cast<uint64_t>(value));
    return LongText{exact_decimal(exact), leading_digits(exact, of.format())};
  }

  const NumberArray &a_, &b_;
  const NumberArray* exact_;
  const FloatFormat& format_;
  size_t limit_;
  Side candidate_, reference_, rounded_;
  uint64_t equal_ = 0, made_nonfinite_ = 0, off_ = 0;
  double rounding_bound_ = 0;                // squares, added up
  bool fits_f16_ = true, fits_bf16_ = true;  // all numbers of both
  uint64_t foreign_ = 0;                     // finite numbers of the candidate that the format does not have
  std::vector<Worst> worst_;
};

void check_shapes(const NumberArray& a, const NumberArray& b) {
  if (a.shape() != b.shape())
    throw usage_error("{} is {}, and {} is {}: expected arrays of one shape", a.path(), shape_text(a.shape()), b.path(),
                      shape_text(b.shape()));
}

}  // namespace

double ArrayDifference::judged_ratio() const {
  const double allowed = std::max(reference_error, rounding_bound);
  return allowed > 0 ? candidate_error / allowed : 0;
}

NumberArray::NumberArray(const std::string& path, const FloatFormat* encodings) : path_(path), file_(open_npy_file(path)) {
  const std::optional<NumberType> type = parse_number_type(file_.type);
  if (type) format_ = format_of(*type, encodings);
  if (format_ == nullptr) {
    std::string hint;
    if (type && (type->kind == 'V' || type->kind == 'u') && type->bytes <= 2)
      hint = fmt::format("; --format {} reads it as encodings of that format", type->bytes == 2 ? "bf16" : "e4m3");
    throw unreadable_error("{}: expected float16, float32 or float64, found the type '{}'{}", path, one_line(file_.type), hint);
  }
  bytes_ = type->bytes;
  reversed_ = type->big_endian != (std::endian::native == std::endian::big);
  for (const int64_t extent : file_.shape) size_ *= static_cast<size_t>(extent);
}

void NumberArray::read(size_t first, std::span<double> numbers) const {
  std::vector<uint8_t> bytes(numbers.size() * bytes_);
  file_.file->read(file_.offset + first * bytes_, bytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint8_t* const element = bytes.data() + i * bytes_;
    if (reversed_) std::reverse(element, element + bytes_);
    uint64_t encoding = 0;
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(&encoding, element, bytes_);
    } else {
      std::memcpy(reinterpret_cast<uint8_t*>(&encoding) + sizeof(encoding) - bytes_, element, bytes_);
    }
    numbers[i] = value_of(*format_, encoding);
  }
}

ArrayDifference compare_arrays(const NumberArray& candidate, const NumberArray& reference, const NumberArray* exact,
                               const ArrayDifferenceOptions& options) {
  check_shapes(candidate, reference);
  const FloatFormat& narrower =
      candidate.format().fraction_bits <= reference.format().fraction_bits ? candidate.format() : reference.format();
  const FloatFormat& format = options.format == nullptr ? narrower : *options.format;
  if (exact != nullptr) {
    check_shapes(candidate, *exact);
    if (exact->format().fraction_bits <= format.fraction_bits)
      throw usage_error("{} has numbers of {}: expected exact ones of a wider type than {}", exact->path(), exact->format().name,
                        format.name);
  }
  return Comparison(candidate, reference, exact, format, options.limit).result();
}

}  // namespace ulpscope
