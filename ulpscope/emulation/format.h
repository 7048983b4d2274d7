// Floating-point formats and the data types that tensors store. A format is one constexpr row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ulpscope {

// An IEEE-like binary format: a sign, `exponent_bits` and `fraction_bits`, an all-ones exponent for Inf and NaN, subnormals.
struct FloatFormat {
  std::string_view name;
  int exponent_bits;
  int fraction_bits;
  int bias;

  constexpr int storage_bits() const { return 1 + exponent_bits + fraction_bits; }
  constexpr int largest_exponent() const { return (1 << exponent_bits) - 2 - bias; }  // of the largest finite value
  constexpr int smallest_normal_exponent() const { return 1 - bias; }
  constexpr int smallest_subnormal_exponent() const { return 1 - bias - fraction_bits; }
  constexpr uint64_t infinity_encoding() const { return ((uint64_t{1} << exponent_bits) - 1) << fraction_bits; }
  // Values; exact in FP64 for every format up to FP64 itself.
  double largest_finite() const;
  double smallest_normal() const;
  double smallest_subnormal() const;
  // The least magnitude that round-to-nearest-even takes to Inf: half an ulp above the largest finite value.
  double overflow_threshold() const;
  // The largest magnitude that round-to-nearest-even takes to zero: half the smallest subnormal, which ties to even.
  double flush_threshold() const;
};

inline constexpr FloatFormat binary16{"fp16", 5, 10, 15};
inline constexpr FloatFormat bfloat16{"bf16", 8, 7, 127};
inline constexpr FloatFormat binary32{"fp32", 8, 23, 127};
inline constexpr FloatFormat binary64{"fp64", 11, 52, 1023};

// All formats. Whatever can be asked about a format by its name can be asked about each of these.
inline constexpr std::array kFormats{&binary16, &bfloat16, &binary32, &binary64};
// Those that values of FP32 are rounded into.
constexpr bool is_narrow(const FloatFormat& format) { return format.storage_bits() < binary32.storage_bits(); }

// What a tensor's elements are. A data type is a size and, where it is a floating-point type, a format.
enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

struct DTypeInfo {
  std::string_view name;      // "f16"
  size_t size;                // bytes
  const FloatFormat* format;  // nullptr for integers and bool
};

inline constexpr std::array<DTypeInfo, 8> kDTypes{{{"f64", 8, &binary64},
                                                   {"f32", 4, &binary32},
                                                   {"f16", 2, &binary16},
                                                   {"bf16", 2, &bfloat16},
                                                   {"i64", 8, nullptr},
                                                   {"i32", 4, nullptr},
                                                   {"u8", 1, nullptr},
                                                   {"bool", 1, nullptr}}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr bool is_float(DType dtype) { return info(dtype).format != nullptr; }

// The format called `name`, or nullptr.
const FloatFormat* find_format(std::string_view name);

}  // namespace ulpscope
