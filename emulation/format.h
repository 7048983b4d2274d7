// Floating-point formats and the data types that tensors store. A format is one constexpr row, or read from a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ulpscope {

// Which encodings stand for what is no number, of the magnitudes in increasing order.
enum class SpecialValues : uint8_t {
  ieee,           // an exponent field of all ones: Inf where the fraction is zero, else NaN
  nan_only,       // NaN where all bits of exponent and fraction are ones; no Inf ("fn")
  negative_zero,  // what would be -0 is the only NaN; neither Inf nor -0 ("fnuz")
  none,           // every encoding is a finite number
};

// What an exponent field of zero means.
enum class ZeroField : uint8_t {
  subnormals,  // zero and subnormal numbers
  zero,        // zero, whatever the fraction
  normal,      // an exponent like all others; there is no zero
};

// A binary format: perhaps a sign, then an exponent field and a fraction. The number of a field f > 0 is
// 2^(f - bias) (1 + fraction / 2^fraction_bits); a subnormal one is 2^(1 - bias) fraction / 2^fraction_bits.
struct FloatFormat {
  std::string_view name;
  int exponent_bits;
  int fraction_bits;
  int bias;
  SpecialValues special_values = SpecialValues::ieee;
  ZeroField zero_field = ZeroField::subnormals;
  bool is_signed = true;
  // The encoding of the largest finite number, where it is not the last that the special values leave. Those above it are NaN.
  uint64_t last_encoding = 0;

  constexpr int storage_bits() const { return (is_signed ? 1 : 0) + exponent_bits + fraction_bits; }
  constexpr uint64_t sign_bit() const { return is_signed ? uint64_t{1} << (exponent_bits + fraction_bits) : 0; }
  // Magnitudes are encodings without the sign.
  constexpr uint64_t last_magnitude() const { return (uint64_t{1} << (exponent_bits + fraction_bits)) - 1; }
  constexpr bool has_infinity() const { return special_values == SpecialValues::ieee; }
  constexpr bool has_nan() const { return special_values != SpecialValues::none; }
  constexpr bool has_zero() const { return zero_field != ZeroField::normal; }
  constexpr uint64_t infinity_encoding() const {
    return ((uint64_t{1} << exponent_bits) - 1) << fraction_bits;
  }  // where it has one
  constexpr uint64_t largest_encoding() const {
    if (last_encoding != 0) return last_encoding;
    if (special_values == SpecialValues::ieee) return infinity_encoding() - 1;
    return last_magnitude() - (special_values == SpecialValues::nan_only ? 1 : 0);
  }
  // The quiet NaN without a payload, positive where there is a sign to choose; where it has one.
  constexpr uint64_t nan_encoding() const {
    if (special_values == SpecialValues::ieee) return infinity_encoding() | (uint64_t{1} << (fraction_bits - 1));
    return special_values == SpecialValues::negative_zero ? sign_bit() : last_magnitude();
  }
  // Whether its significand is; without fraction bits that is 1.
  constexpr bool largest_is_even() const { return fraction_bits > 0 && (largest_encoding() & 1) == 0; }
  constexpr int largest_exponent() const {  // of the largest finite number
    return static_cast<int>(largest_encoding() >> fraction_bits) - bias;
  }
  constexpr int smallest_normal_exponent() const { return (zero_field == ZeroField::normal ? 0 : 1) - bias; }
  // Of the least number above zero.
  constexpr int smallest_exponent() const {
    return smallest_normal_exponent() - (zero_field == ZeroField::subnormals ? fraction_bits : 0);
  }
  // Exact in FP64 for every format up to FP64 itself.
  double largest_finite() const;
  double smallest_normal() const;
  double smallest_positive() const;
  // The distance between numbers at 1, which subnormals of some formats reach.
  double epsilon() const;
  // The least FP64 magnitude that round-to-nearest-even takes beyond the largest finite number: half an ulp above it, or, where
  // that number is even, the next one after that.
  double overflow_threshold() const;
  // The largest magnitude that round-to-nearest-even takes to zero: half the smallest number, which ties to even; 0 without a zero.
  double flush_threshold() const;
};

inline constexpr FloatFormat binary16{"fp16", 5, 10, 15};
inline constexpr FloatFormat bfloat16{"bf16", 8, 7, 127};
inline constexpr FloatFormat tensor_float32{"tf32", 8, 10, 127};
inline constexpr FloatFormat binary32{"fp32", 8, 23, 127};
inline constexpr FloatFormat binary64{"fp64", 11, 52, 1023};
// FP8, of the Open Compute Project (OFP8, 2023) and of other makers.
inline constexpr FloatFormat e4m3{"e4m3", 4, 3, 7, SpecialValues::nan_only};
inline constexpr FloatFormat e4m3_ieee{"e4m3ieee", 4, 3, 7};
inline constexpr FloatFormat e4m3_fnuz{"e4m3fnuz", 4, 3, 8, SpecialValues::negative_zero};
inline constexpr FloatFormat e5m2{"e5m2", 5, 2, 15};
inline constexpr FloatFormat e5m2_fnuz{"e5m2fnuz", 5, 2, 16, SpecialValues::negative_zero};
// FP6, FP4 and block scales, of the Open Compute Project's Microscaling formats (OCP MX v1.0, 2023).
inline constexpr FloatFormat e3m2{"e3m2", 3, 2, 3, SpecialValues::none};
inline constexpr FloatFormat e2m3{"e2m3", 2, 3, 1, SpecialValues::none};
inline constexpr FloatFormat e2m1{"e2m1", 2, 1, 1, SpecialValues::none};
inline constexpr FloatFormat e8m0{"e8m0", 8, 0, 127, SpecialValues::nan_only, ZeroField::normal, false};

// All rows. Whatever can be asked about a format by its name can be asked about each of these.
inline constexpr std::array kFormats{&binary16,  &bfloat16, &tensor_float32, &binary32, &binary64, &e4m3, &e4m3_ieee,
                                     &e4m3_fnuz, &e5m2,     &e5m2_fnuz,      &e3m2,     &e2m3,     &e2m1, &e8m0};
// Those that values of FP32 are rounded into.
constexpr bool is_narrow(const FloatFormat& format) { return format.storage_bits() < binary32.storage_bits(); }

// What a tensor's elements are. A data type is a size and, where it is a floating-point type, a format.
// Their numbers stand in traces, so new ones come last.
enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean, f8_e4m3, f8_e5m2 };

// Of an element, in bytes. A function, since device code has no tables of the host.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
    case DType::boolean:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      break;
  }
  return 1;
}
// Its tensors are made by a multiplication with a quantization scale and a rounding that saturates, and only such ops read them
// that know it. As size_of, for device code too.
constexpr bool is_quantized(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

struct DTypeInfo {
  std::string_view name;      // "f16"
  size_t size;                // size_of
  const FloatFormat* format;  // nullptr for integers and bool
};

inline constexpr std::array<DTypeInfo, 10> kDTypes{{{"f64", size_of(DType::f64), &binary64},
                                                    {"f32", size_of(DType::f32), &binary32},
                                                    {"f16", size_of(DType::f16), &binary16},
                                                    {"bf16", size_of(DType::bf16), &bfloat16},
                                                    {"i64", size_of(DType::i64), nullptr},
                                                    {"i32", size_of(DType::i32), nullptr},
                                                    {"u8", size_of(DType::u8), nullptr},
                                                    {"bool", size_of(DType::boolean), nullptr},
                                                    {"e4m3", size_of(DType::f8_e4m3), &e4m3},
                                                    {"e5m2", size_of(DType::f8_e5m2), &e5m2}}};

// Of the host: device code asks size_of and is_quantized.
constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr bool is_float(DType dtype) { return info(dtype).format != nullptr; }

// The row called `name`, in small letters as above or by another usual name ("half", "bfloat16", "e4m3fn", "e2m1fn"), or nullptr.
const FloatFormat* find_format(std::string_view name);

// The format that a text describes: a row's name, or e<E>m<F> with these many exponent and fraction bits, followed by
//   ieee, fn, fnuz or finite   its special values; nothing: ieee ("e5m10" is fp16), but for names that are rows ("e4m3", "e2m1")
// and both, but for fp64 and e8m0, by
//   :bias=B                    the row's, or 2^(E-1) - 1 unless given, one more with fnuz
//   :largest=VALUE             the largest finite number, one of the format
//   :subnormals=no             numbers below the smallest normal one are zero
// such as "e4m3:bias=11", "fp16:subnormals=no" or "e3m4". The same format is the same object, which lives as long as the program.
// Throws a usage Error that says what was expected for a text that is no format, and for one that cannot be: more bits or a wider
// range than FP32, or no encoding for what the special values ask for.
const FloatFormat& parse_format(std::string_view text);

}  // namespace ulpscope
