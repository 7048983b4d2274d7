// Tensor-core dot products from their written rules, in big integers, with a table and a reading of encodings of its own.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ulpscope::twin {

using Integer = boost::multiprecision::cpp_int;

struct Format {
  const char* name;
  int exponent_bits, fraction_bits, bias;
  enum { ieee, only_nan, finite } special;
  bool operator==(const Format& other) const { return this == &other; }
};
inline constexpr Format kFp16{"fp16", 5, 10, 15, Format::ieee}, kBf16{"bf16", 8, 7, 127, Format::ieee},
    kTf32{"tf32", 8, 10, 127, Format::ieee}, kFp32{"fp32", 8, 23, 127, Format::ieee}, kE4M3{"e4m3", 4, 3, 7, Format::only_nan},
    kE5M2{"e5m2", 5, 2, 15, Format::ieee}, kE3M2{"e3m2", 3, 2, 3, Format::finite}, kE2M3{"e2m3", 2, 3, 1, Format::finite},
    kE2M1{"e2m1", 2, 1, 1, Format::finite};

enum class Conversion { rz_fp32, rz_e8m13, rne_fp16 };
// plain: one chain from C. last: a chain from zero for each block, and then + C. passes: the same with two sums of every other pair
// of products, of factors that are FP16 numbers.
enum class Chain { plain, last, passes };

struct Row {
  const char *gpu, *family, *scales;
  std::vector<const Format*> inputs;
  int products, fraction_bits, zero_exponent;
  Conversion conversion;
  Chain chain = Chain::plain;
};

inline std::vector<Row> rows() {
  using enum Conversion;
  const std::vector<const Format*> fp16{&kFp16}, half{&kFp16, &kBf16}, tf32{&kTf32}, fp8{&kE4M3, &kE5M2}, fp4{&kE2M1},
      fp8_to_4{&kE4M3, &kE5M2, &kE3M2, &kE2M3, &kE2M1};
  return {{"v100", "mma", "none", fp16, 4, 23, -131, rz_fp32},
          {"v100", "mma", "none", fp16, 4, 23, -20, rne_fp16},
          {"t4", "mma", "none", fp16, 8, 24, -132, rz_fp32},
          {"t4", "mma", "none", fp16, 8, 24, -21, rne_fp16},
          {"a100", "mma", "none", half, 8, 24, -132, rz_fp32},
          {"a2", "mma", "none", tf32, 4, 24, -132, rz_fp32},
          {"a100", "mma", "none", fp16, 8, 24, -21, rne_fp16},
          {"rtx4090", "mma", "none", half, 8, 24, -132, rz_fp32},
          {"l40s", "mma", "none", tf32, 4, 24, -132, rz_fp32},
          {"l40s", "mma", "none", fp16, 8, 24, -21, rne_fp16},
          {"rtx1000ada", "mma", "none", fp8, 16, 13, -132, rz_e8m13},
          {"rtx4090", "mma", "none", fp8, 16, 13, -21, rne_fp16},
          {"h100", "mma", "none", half, 16, 25, -133, rz_fp32},
          {"h200", "mma", "none", tf32, 8, 25, -133, rz_fp32},
          {"h200", "mma", "none", fp16, 16, 25, -21, rne_fp16},
          {"h100", "mma", "none", fp8, 16, 25, -133, rz_fp32, Chain::passes},
          {"h100", "mma", "none", fp8, 16, 25, -21, rne_fp16, Chain::passes},
          {"h100", "wgmma", "none", half, 16, 25, -133, rz_fp32},
          {"h100", "wgmma", "none", tf32, 8, 25, -133, rz_fp32},
          {"h100", "wgmma", "none", fp16, 16, 25, -21, rne_fp16},
          {"h200", "wgmma", "none", fp8, 32, 13, -133, rz_e8m13},
          {"h200", "wgmma", "none", fp8, 32, 13, -133, rne_fp16},
          {"b200", "mma", "none", half, 16, 25, -133, rz_fp32},
          {"b200", "mma", "none", tf32, 8, 25, -133, rz_fp32},
          {"b200", "mma", "none", fp16, 16, 25, -22, rne_fp16},
          {"b200", "mma", "none", fp8, 32, 25, -133, rz_fp32, Chain::last},
          {"b200", "mma", "none", fp8, 16, 25, -22, rne_fp16, Chain::passes},
          {"b200", "tcgen05", "none", half, 16, 25, -133, rz_fp32},
          {"b200", "tcgen05", "none", tf32, 8, 25, -133, rz_fp32},
          {"b200", "tcgen05", "none", fp16, 16, 25, -133, rne_fp16},
          {"b200", "tcgen05", "none", fp8_to_4, 32, 25, -133, rz_fp32},
          {"b200", "tcgen05", "none", fp8_to_4, 32, 25, -133, rne_fp16},
          {"b200", "tcgen05", "mx", fp8_to_4, 32, 25, -133, rz_fp32},
          {"b200", "tcgen05", "mxfp4", fp4, 64, 35, -139, rz_fp32},
          {"b200", "tcgen05", "nvfp4", fp4, 64, 35, -139, rz_fp32},
          {"rtx5090", "mma", "none", half, 16, 25, -133, rz_fp32},
          {"rtx5090", "mma", "none", tf32, 8, 25, -133, rz_fp32},
          {"rtx5090", "mma", "none", fp16, 16, 25, -22, rne_fp16},
          {"rtx5090", "mma", "none", fp8_to_4, 32, 25, -133, rz_fp32},
          {"rtx5090", "mma", "none", fp8_to_4, 32, 25, -22, rne_fp16},
          {"rtx5090", "mma", "mx", fp8_to_4, 32, 25, -133, rz_fp32},
          {"rtx5090", "mma", "mxfp4", fp4, 64, 35, -139, rz_fp32},
          {"rtx5090", "mma", "nvfp4", fp4, 64, 35, -139, rz_fp32}};
}

// Values are integers of 2^-kPoint.
inline constexpr int kPoint = 900;

struct Value {
  enum { number, infinite, nan } kind = number;
  bool negative = false;
  Integer magnitude = 0;
  int exponent = 0;  // that the field stands for
};

inline Value read(const Format& format, uint32_t encoding) {
  const int width = format.exponent_bits + format.fraction_bits;
  const uint32_t fraction = encoding & ((1u << format.fraction_bits) - 1);
  const int field = static_cast<int>((encoding >> format.fraction_bits) & ((1u << format.exponent_bits) - 1));
  const bool last = field == (1 << format.exponent_bits) - 1;
  Value value;
  value.negative = ((encoding >> width) & 1) != 0;
  if (format.special == Format::ieee && last) {
    value.kind = fraction == 0 ? Value::infinite : Value::nan;
  } else if (format.special == Format::only_nan && last && fraction == (1u << format.fraction_bits) - 1) {
    value.kind = Value::nan;
  } else {
    value.exponent = std::max(field, 1) - format.bias;
    value.magnitude = Integer(fraction + (field > 0 ? 1u << format.fraction_bits : 0))
                      << (value.exponent - format.fraction_bits + kPoint);
  }
  return value;
}

// A factor of the passes: the same number, as FP16 has it.
inline Value as_fp16(Value value) {
  if (value.kind == Value::number && value.magnitude != 0) value.exponent = std::max<int>(msb(value.magnitude) - kPoint, -14);
  return value;
}

inline Value scale_of(const std::string& scales, uint8_t encoding) {
  if (scales == "nvfp4") return read(kE4M3, encoding & 0x7F);
  Value value;
  if (encoding == 0xFF) value.kind = Value::nan;
  value.exponent = encoding - 127;
  value.magnitude = Integer(1) << (value.exponent + kPoint);
  return value;
}

inline Value times(const Value& x, const Value& y) {
  Value product;
  product.negative = x.negative != y.negative;
  product.exponent = x.exponent + y.exponent;
  const auto is_zero = [](const Value& value) { return value.kind == Value::number && value.magnitude == 0; };
  if (x.kind == Value::nan || y.kind == Value::nan) {
    product.kind = Value::nan;
  } else if (x.kind == Value::infinite || y.kind == Value::infinite) {
    product.kind = is_zero(x) || is_zero(y) ? Value::nan : Value::infinite;
  } else {
    product.magnitude = (x.magnitude * y.magnitude) >> kPoint;
  }
  return product;
}

struct Target {
  int fraction_bits, smallest, largest;  // exponents of normal numbers
  bool nearest_even;
  int width;  // without the sign
  int shift;  // of the fraction in the encoding
};
inline Target target_of(Conversion conversion) {
  switch (conversion) {
    case Conversion::rz_fp32:
      return {23, -126, 127, false, 31, 0};
    case Conversion::rz_e8m13:
      return {13, -126, 127, false, 31, 10};
    case Conversion::rne_fp16:
      break;
  }
  return {10, -14, 15, true, 15, 0};
}

// The encoding of a number of so many 2^-kPoint.
inline uint32_t encode(const Target& target, bool negative, const Integer& magnitude) {
  const uint32_t sign = negative ? 1u << target.width : 0, infinity = (2u * target.largest + 1)
                                                                      << (target.fraction_bits + target.shift);
  if (magnitude == 0) return sign;
  int exponent = std::max<int>(msb(magnitude) - kPoint, target.smallest);
  const int unit = exponent - target.fraction_bits + kPoint;
  Integer steps = magnitude >> unit;
  const Integer rest = magnitude - (steps << unit), half = Integer(1) << (unit - 1);
  if (target.nearest_even && (rest > half || (rest == half && (steps & 1) != 0))) ++steps;
  if (msb(steps | 1) > static_cast<unsigned>(target.fraction_bits)) {
    steps >>= 1;
    ++exponent;
  }
  if (exponent > target.largest) return sign | infinity;
  auto whole = static_cast<uint32_t>(steps);
  const uint32_t implicit = 1u << target.fraction_bits;
  const auto field = static_cast<uint32_t>(whole >= implicit ? exponent - target.smallest + 1 : 0);
  whole &= implicit - 1;
  return sign | ((field << target.fraction_bits | whole) << target.shift);
}

inline uint32_t special_result(const Target& target, const std::vector<Value>& terms, bool& is_special) {
  bool nan = false, positive = false, negative = false;
  for (const Value& term : terms) {
    nan |= term.kind == Value::nan;
    if (term.kind == Value::infinite) (term.negative ? negative : positive) = true;
  }
  is_special = nan || positive || negative;
  if (nan || (positive && negative)) return (1u << target.width) - 1;
  return encode(target, negative, Integer(1) << (target.largest + 1 + kPoint));
}

inline uint32_t fused_sum(const Row& row, const std::vector<Value>& terms) {
  const Target target = target_of(row.conversion);
  bool is_special = false;
  const uint32_t special = special_result(target, terms, is_special);
  if (is_special) return special;
  int largest = row.zero_exponent;
  for (const Value& term : terms) {
    // A group that cancels keeps its scales' exponent: kept in `exponent`, where a term that is nothing has the least integer.
    if (term.exponent != INT32_MIN) largest = std::max(largest, term.exponent);
  }
  Integer sum = 0;
  const int unit = largest - row.fraction_bits + kPoint;
  for (const Value& term : terms) {
    const Integer kept = term.magnitude >> unit;
    sum += term.negative ? Integer(-kept) : kept;
  }
  const uint32_t encoding = encode(target, sum < 0, abs(sum) << unit);
  return encoding == encode(target, true, 0) ? 0 : encoding;
}

inline uint32_t add(const Target& target, const Format& format, uint32_t x, uint32_t y) {
  const std::vector<Value> terms{read(format, x), read(format, y)};
  bool is_special = false;
  const uint32_t special = special_result(target, terms, is_special);
  if (is_special) return special;
  Integer sum = 0;
  for (const Value& term : terms) sum += term.negative ? Integer(-term.magnitude) : term.magnitude;
  Target nearest = target;
  nearest.nearest_even = true;
  return encode(nearest, sum < 0 || (sum == 0 && terms[0].negative && terms[1].negative), abs(sum));
}

inline uint32_t dot(const Row& row, const Format& a_format, const Format& b_format, std::vector<uint32_t> a,
                    std::vector<uint32_t> b, uint32_t c, const std::vector<uint8_t>& a_scales,
                    const std::vector<uint8_t>& b_scales) {
  const std::string scales = row.scales;
  const bool groups = scales == "mxfp4" || scales == "nvfp4", passes = row.chain == Chain::passes;
  const size_t block = row.products * (passes ? 2 : 1), each = scales == "nvfp4" ? 16 : 32;
  const Target target = target_of(row.conversion);
  const Format& output = row.conversion == Conversion::rne_fp16 ? kFp16 : kFp32;
  a.resize((a.size() + block - 1) / block * block);
  b.resize(a.size());

  std::vector<Value> products;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto factor = [&](const Format& format, uint32_t encoding) {
      const Value value = read(format, format == kTf32 ? encoding >> 13 : encoding);
      return passes ? as_fp16(value) : value;
    };
    products.push_back(times(factor(a_format, a[i]), factor(b_format, b[i])));
  }
  const auto scale = [&](size_t i) {
    if (i / each >= a_scales.size()) return Value();
    return times(scale_of(scales, a_scales[i / each]), scale_of(scales, b_scales[i / each]));
  };
  const auto without_zero = [](Value value) {
    if (value.kind == Value::number && value.magnitude == 0) value.exponent = INT32_MIN;
    return value;
  };

  uint32_t accumulator = c;
  for (size_t first = 0; first < a.size(); first += block) {
    uint32_t sum = row.chain == Chain::plain ? accumulator : 0;
    for (size_t pass = 0; pass < (passes ? 2 : 1); ++pass) {
      std::vector<Value> terms;
      for (size_t i = first; i < first + block; ++i) {
        if (passes && i / 2 % 2 != pass) continue;
        if (!groups) {
          terms.push_back(without_zero(scales == "mx" ? times(products[i], scale(i)) : products[i]));
        } else if (i % 16 == 0) {
          Integer group = 0;
          bool nothing = true, negative = true;
          for (size_t j = i; j < i + 16; ++j) {
            group += products[j].negative ? Integer(-products[j].magnitude) : products[j].magnitude;
            nothing &= products[j].magnitude == 0;
            negative &= products[j].negative;
          }
          Value term;
          term.negative = group < 0 || (nothing && negative);
          term.magnitude = abs(group);
          const Value by = scale(i);
          term = times(term, by);
          term.exponent = nothing || by.magnitude == 0 ? INT32_MIN : by.exponent;
          terms.push_back(term);
        }
      }
      terms.push_back(without_zero(read(output, sum)));
      sum = fused_sum(row, terms);
    }
    accumulator = row.chain == Chain::plain ? sum : add(target, output, sum, accumulator);
  }
  return accumulator;
}

}  // namespace ulpscope::twin
