// The numbers of a format in order, by the definition of its fields alone, and what each rounding makes of a value between two of
// them. Nothing here rounds by shifting bits: a value is compared with its neighbours and with their middle, exactly, in FP64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "ulpscope/emulation/number.h"

namespace ulpscope {

class Neighbours {
 public:
  // Formats of at most 16 bits.
  explicit Neighbours(const FloatFormat& format) : format_(format) {
    const int bits = format.exponent_bits + format.fraction_bits;
    for (uint64_t magnitude = 0; magnitude < uint64_t{1} << bits; ++magnitude) {
      const auto value = number_of(magnitude);
      if (!value) continue;
      encodings_.push_back(magnitude);
      values_.push_back(*value);
    }
    // What would come after the last one, as far as roundings are concerned: the next step of its binade.
    const double last = values_.back();
    beyond_ = last + std::ldexp(1.0, std::max(std::ilogb(last), smallest_normal()) - format.fraction_bits);
  }

  const std::vector<double>& values() const { return values_; }
  double beyond() const { return beyond_; }
  uint64_t encoding(size_t i) const { return encodings_[i]; }

  // Of a number, Inf included, in every mode but the stochastic one. Of formats without Inf or NaN overflow saturates.
  uint64_t rounded(double value, const Rounding& rounding) const {
    const bool negative = std::signbit(value);
    const double magnitude = std::fabs(value);
    const bool unsigned_zero = format_.special_values == SpecialValues::negative_zero;
    const uint64_t sign = negative && format_.is_signed ? uint64_t{1} << (format_.storage_bits() - 1) : 0;
    const bool saturates = rounding.overflow == Overflow::saturate || format_.special_values == SpecialValues::none;
    if (std::isinf(value)) return saturates ? sign | encodings_.back() : beyond_encoding(sign);

    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    size_t i = static_cast<size_t>(above - values_.begin());  // the first that is not below
    bool is_beyond = false;
    if (i == values_.size() || values_[i] != magnitude) {
      if (i == 0) return sign | encodings_[0];  // without a zero
      const double low = values_[i - 1], high = i < values_.size() ? values_[i] : beyond_;
      if (goes_up(magnitude, low, high, is_even(i - 1), negative, rounding.mode)) {
        is_beyond = i == values_.size();
      } else {
        --i;
      }
    }
    if (is_beyond) return saturates || rounding.mode == RoundingMode::to_odd ? sign | encodings_.back() : beyond_encoding(sign);
    if (rounding.subnormals == SubnormalResults::flush && format_.exponent_bits > 0 &&
        values_[i] < std::ldexp(1.0, smallest_normal()))
      i = 0;
    if (encodings_[i] == 0 && unsigned_zero) return 0;
    return sign | encodings_[i];
  }

 private:
  int smallest_normal() const { return (format_.zero_field == ZeroField::normal ? 0 : 1) - format_.bias; }

  // As the format's standard says; nothing: it is no number.
  std::optional<double> number_of(uint64_t magnitude) const {
    const uint64_t fraction_range = uint64_t{1} << format_.fraction_bits, exponent_range = uint64_t{1} << format_.exponent_bits;
    const uint64_t field = magnitude / fraction_range, fraction = magnitude % fraction_range;
    const bool is_last = magnitude == fraction_range * exponent_range - 1;
    if (format_.special_values == SpecialValues::ieee && field == exponent_range - 1) return {};
    if (format_.special_values == SpecialValues::nan_only && is_last) return {};
    if (format_.last_encoding != 0 && magnitude > format_.last_encoding) return {};
    const double part = static_cast<double>(fraction) / static_cast<double>(fraction_range);
    if (field > 0 || format_.zero_field == ZeroField::normal) return std::ldexp(1 + part, static_cast<int>(field) - format_.bias);
    if (format_.zero_field == ZeroField::zero && fraction != 0) return {};
    return std::ldexp(part, 1 - format_.bias);
  }

  // An even significand ends in 0: that of the encoding, or, where it has no fraction, zero against one.
  bool is_even(size_t i) const {
    if (format_.fraction_bits > 0) return encodings_[i] % 2 == 0;
    return values_[i] == 0;
  }

  static bool goes_up(double magnitude, double low, double high, bool low_is_even, bool negative, RoundingMode mode) {
    const double to_low = magnitude - low, to_high = high - magnitude;  // exact: at most 17 bits between them in these tests
    switch (mode) {
      case RoundingMode::nearest_even:
        return to_low > to_high || (to_low == to_high && !low_is_even);
      case RoundingMode::nearest_away:
        return to_low >= to_high;
      case RoundingMode::up:
        return !negative;
      case RoundingMode::down:
        return negative;
      case RoundingMode::to_odd:
        return low_is_even;
      case RoundingMode::toward_zero:
      case RoundingMode::stochastic:
        break;
    }
    return false;
  }

  // Inf, or else NaN.
  uint64_t beyond_encoding(uint64_t sign) const {
    const uint64_t ones = (uint64_t{1} << (format_.exponent_bits + format_.fraction_bits)) - 1;
    switch (format_.special_values) {
      case SpecialValues::ieee:
        return sign | (ones - ((uint64_t{1} << format_.fraction_bits) - 1));
      case SpecialValues::negative_zero:
        return ones + 1;
      default:
        return sign | ones;
    }
  }

  const FloatFormat& format_;
  std::vector<uint64_t> encodings_;
  std::vector<double> values_;
  double beyond_;
};

}  // namespace ulpscope
