#include "tests/ptx/operations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::ptx {
namespace {

using Operations = std::map<std::string, Instruction::Compute>;

template <typename T>
T get(const Word* registers, const Instruction& in, size_t operand) {
  const Word word = registers[in.operands[operand]];
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::is_same_v<T, bool> ? word & 1 : word);  // -1 is true too
  } else {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
}
template <typename T>
void put(Word* registers, const Instruction& in, T value) {
  Word& word = registers[in.operands[0]];
  if constexpr (std::is_integral_v<T>) {
    word = static_cast<Word>(value);  // with its sign, where it has one
  } else {
    word = 0;
    std::memcpy(&word, &value, sizeof value);
  }
}
// GPUs have one NaN of FP32.
template <typename T>
T as_gpu(T value) {
  if constexpr (std::is_same_v<T, float>) return std::isnan(value) ? std::bit_cast<float>(uint32_t{0x7FFFFFFF}) : value;
  return value;
}

// Body is a type without state: an operation is a function.
template <typename To, typename From, typename Body>
void unary(Operations& operations, const std::string& name, Body) {
  operations[name] = [](Word* r, const Instruction& in) { put<To>(r, in, as_gpu(Body{}(get<From>(r, in, 1)))); };
}
template <typename To, typename From, typename Body>
void binary(Operations& operations, const std::string& name, Body) {
  operations[name] = [](Word* r, const Instruction& in) {
    put<To>(r, in, as_gpu(Body{}(get<From>(r, in, 1), get<From>(r, in, 2))));
  };
}
template <typename T, typename Body>
void ternary(Operations& operations, const std::string& name, Body) {
  operations[name] = [](Word* r, const Instruction& in) {
    put<T>(r, in, as_gpu(Body{}(get<T>(r, in, 1), get<T>(r, in, 2), get<T>(r, in, 3))));
  };
}
template <typename T, typename Body>
void shift(Operations& operations, const std::string& name, Body) {
  operations[name] = [](Word* r, const Instruction& in) { put<T>(r, in, Body{}(get<T>(r, in, 1), get<uint32_t>(r, in, 2))); };
}

template <typename T>
void check_division(T a, T b) {
  if (b == 0) throw failed_error("a division of {} by 0", a);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1 && a == std::numeric_limits<T>::min()) throw failed_error("a division of {} by -1", a);
  }
}

// What they compute wraps.
template <typename T>
void add_integers(Operations& all, const std::string& type) {
  binary<T, T>(all, "add." + type, [](T a, T b) { return static_cast<T>(static_cast<Word>(a) + static_cast<Word>(b)); });
  binary<T, T>(all, "sub." + type, [](T a, T b) { return static_cast<T>(static_cast<Word>(a) - static_cast<Word>(b)); });
  binary<T, T>(all, "mul.lo." + type, [](T a, T b) { return static_cast<T>(static_cast<Word>(a) * static_cast<Word>(b)); });
  ternary<T>(all, "mad.lo." + type,
             [](T a, T b, T c) { return static_cast<T>(static_cast<Word>(a) * static_cast<Word>(b) + static_cast<Word>(c)); });
  binary<T, T>(all, "div." + type, [](T a, T b) { return check_division(a, b), static_cast<T>(a / b); });
  binary<T, T>(all, "rem." + type, [](T a, T b) { return check_division(a, b), static_cast<T>(a % b); });
  binary<T, T>(all, "min." + type, [](T a, T b) { return std::min(a, b); });
  binary<T, T>(all, "max." + type, [](T a, T b) { return std::max(a, b); });
  unary<T, T>(all, "neg." + type, [](T a) { return static_cast<T>(Word{0} - static_cast<Word>(a)); });
  shift<T>(all, "shr." + type, [](T a, uint32_t by) {
    if (by < 8 * sizeof(T)) return static_cast<T>(a >> by);
    return static_cast<T>(a < T{0} ? -1 : 0);
  });
}

template <typename T>
void add_bits(Operations& all, const std::string& type) {
  binary<T, T>(all, "and." + type, [](T a, T b) { return static_cast<T>(a & b); });
  binary<T, T>(all, "or." + type, [](T a, T b) { return static_cast<T>(a | b); });
  binary<T, T>(all, "xor." + type, [](T a, T b) { return static_cast<T>(a ^ b); });
  if constexpr (std::is_same_v<T, bool>) {
    unary<T, T>(all, "not." + type, [](T a) { return !a; });
  } else {
    unary<T, T>(all, "not." + type, [](T a) { return static_cast<T>(~a); });
    shift<T>(all, "shl." + type, [](T a, uint32_t by) { return by < 8 * sizeof(T) ? static_cast<T>(a << by) : T{0}; });
    unary<uint32_t, T>(all, "popc." + type, [](T a) { return static_cast<uint32_t>(std::popcount(a)); });
    unary<uint32_t, T>(all, "clz." + type, [](T a) { return static_cast<uint32_t>(std::countl_zero(a)); });
    // The bits of a that are lowest, `count` of them, in the place of those of b from bit `first` on.
    all["bfi." + type] = [](Word* r, const Instruction& in) {
      const auto first = get<uint8_t>(r, in, 3), count = get<uint8_t>(r, in, 4);
      T result = get<T>(r, in, 2);
      for (uint32_t i = 0; i < count && first + i < 8 * sizeof(T); ++i) {
        const T bit = static_cast<T>(T{1} << (first + i));
        result = static_cast<T>((get<T>(r, in, 1) >> i & 1) != 0 ? result | bit : result & ~bit);
      }
      put<T>(r, in, result);
    };
  }
}

template <typename T>
void add_moves(Operations& all, const std::string& type) {
  all["mov." + type] = [](Word* r, const Instruction& in) { put<T>(r, in, get<T>(r, in, 1)); };
  all["selp." + type] = [](Word* r, const Instruction& in) { put<T>(r, in, get<T>(r, in, get<bool>(r, in, 3) ? 1 : 2)); };
}

// The names with a u at their end are true of NaN too.
template <typename T>
void add_comparisons(Operations& all, const std::string& type) {
  binary<bool, T>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  binary<bool, T>(all, "setp.ne." + type, [](T a, T b) { return a < b || a > b; });
  binary<bool, T>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  binary<bool, T>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  binary<bool, T>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  binary<bool, T>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    binary<bool, T>(all, "setp.equ." + type, [](T a, T b) { return !(a < b || a > b); });
    binary<bool, T>(all, "setp.neu." + type, [](T a, T b) { return !(a == b); });
    binary<bool, T>(all, "setp.ltu." + type, [](T a, T b) { return !(a >= b); });
    binary<bool, T>(all, "setp.leu." + type, [](T a, T b) { return !(a > b); });
    binary<bool, T>(all, "setp.gtu." + type, [](T a, T b) { return !(a <= b); });
    binary<bool, T>(all, "setp.geu." + type, [](T a, T b) { return !(a < b); });
    binary<bool, T>(all, "setp.num." + type, [](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
    binary<bool, T>(all, "setp.nan." + type, [](T a, T b) { return std::isnan(a) || std::isnan(b); });
  }
}

// Of a NaN and a number it is the number, and +0 is above -0.
template <typename T>
T larger_of(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <typename T>
void add_floating(Operations& all, const std::string& type) {
  binary<T, T>(all, "add.rn." + type, [](T a, T b) { return a + b; });
  binary<T, T>(all, "sub.rn." + type, [](T a, T b) { return a - b; });
  binary<T, T>(all, "mul.rn." + type, [](T a, T b) { return a * b; });
  binary<T, T>(all, "div.rn." + type, [](T a, T b) { return a / b; });
  ternary<T>(all, "fma.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
  unary<T, T>(all, "rcp.rn." + type, [](T a) { return T{1} / a; });
  unary<T, T>(all, "sqrt.rn." + type, [](T a) { return std::sqrt(a); });
  binary<T, T>(all, "max." + type, [](T a, T b) { return larger_of(a, b); });
  binary<T, T>(all, "min." + type, [](T a, T b) { return -larger_of(-a, -b); });
  unary<T, T>(all, "neg." + type, [](T a) { return -a; });
  unary<T, T>(all, "abs." + type, [](T a) { return std::fabs(a); });
  unary<T, T>(all, "cvt.rni." + type + "." + type, [](T a) { return std::nearbyint(a); });
}

template <typename To, typename From>
void add_conversion(Operations& all, const std::string& to, const std::string& from) {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    unary<To, From>(all, "cvt." + to + "." + from, [](From value) { return static_cast<To>(value); });
  } else if constexpr (std::is_integral_v<To>) {
    unary<To, From>(all, "cvt.rzi." + to + "." + from, [](From value) {
      const From whole = std::trunc(value);
      const bool has_room = whole >= static_cast<From>(std::numeric_limits<To>::min()) &&
                            whole < std::ldexp(From{1}, std::numeric_limits<To>::digits);  // both are exact
      if (!has_room) throw failed_error("a conversion of {} to an integer of {} bytes", value, sizeof(To));
      return static_cast<To>(whole);
    });
  } else if constexpr (std::is_integral_v<From> || sizeof(To) < sizeof(From)) {
    unary<To, From>(all, "cvt.rn." + to + "." + from, [](From value) { return static_cast<To>(value); });
  } else if constexpr (sizeof(To) > sizeof(From)) {
    unary<To, From>(all, "cvt." + to + "." + from, [](From value) { return static_cast<To>(value); });
  }
}
template <typename From>
void add_conversions(Operations& all, const std::string& from) {
  add_conversion<uint8_t, From>(all, "u8", from);
  add_conversion<int8_t, From>(all, "s8", from);
  add_conversion<uint16_t, From>(all, "u16", from);
  add_conversion<int16_t, From>(all, "s16", from);
  add_conversion<uint32_t, From>(all, "u32", from);
  add_conversion<int32_t, From>(all, "s32", from);
  add_conversion<uint64_t, From>(all, "u64", from);
  add_conversion<int64_t, From>(all, "s64", from);
  add_conversion<float, From>(all, "f32", from);
  add_conversion<double, From>(all, "f64", from);
}

template <typename T>
void add_integer(Operations& all, const std::string& type) {
  add_integers<T>(all, type);
  add_comparisons<T>(all, type);
  add_moves<T>(all, type);
  add_conversions<T>(all, type);
}
template <typename T>
void add_untyped(Operations& all, const std::string& type) {
  add_bits<T>(all, type);
  add_moves<T>(all, type);
  add_comparisons<T>(all, type);
}
template <typename T>
void add_float(Operations& all, const std::string& type) {
  add_floating<T>(all, type);
  add_comparisons<T>(all, type);
  add_moves<T>(all, type);
  add_conversions<T>(all, type);
}

// mov of two halves of a register, the lower one first.
template <typename Half, typename Whole>
void add_split(Operations& all, const std::string& type) {
  all["split." + type] = [](Word* r, const Instruction& in) {
    const Whole whole = get<Whole>(r, in, 2);
    r[in.operands[1]] = static_cast<Half>(whole >> (8 * sizeof(Half)));
    r[in.operands[0]] = static_cast<Half>(whole);
  };
}

Operations make_operations() {
  Operations all;
  add_integer<uint8_t>(all, "u8");
  add_integer<int8_t>(all, "s8");
  add_integer<uint16_t>(all, "u16");
  add_integer<int16_t>(all, "s16");
  add_integer<uint32_t>(all, "u32");
  add_integer<int32_t>(all, "s32");
  add_integer<uint64_t>(all, "u64");
  add_integer<int64_t>(all, "s64");
  add_untyped<bool>(all, "pred");
  add_untyped<uint16_t>(all, "b16");
  add_untyped<uint32_t>(all, "b32");
  add_untyped<uint64_t>(all, "b64");
  add_float<float>(all, "f32");
  add_float<double>(all, "f64");
  add_split<uint16_t, uint32_t>(all, "b32");
  add_split<uint32_t, uint64_t>(all, "b64");
  binary<uint32_t, uint16_t>(all, "mul.wide.u16", [](uint32_t a, uint32_t b) { return a * b; });
  binary<uint64_t, uint32_t>(all, "mul.wide.u32", [](uint64_t a, uint64_t b) { return a * b; });
  binary<int64_t, int32_t>(all, "mul.wide.s32", [](int64_t a, int64_t b) { return a * b; });
  unary<float, uint16_t>(all, "cvt.f32.f16", [](uint16_t a) { return f16_to_float(a); });
  unary<uint16_t, float>(all, "cvt.rn.f16.f32", [](float a) { return std::isnan(a) ? uint16_t{0x7FFF} : round_to_f16(a); });
  unary<uint16_t, float>(all, "cvt.rn.bf16.f32", [](float a) { return std::isnan(a) ? uint16_t{0x7FFF} : round_to_bf16(a); });
  // `count` bits of a from bit `first` on.
  all["bfe.u32"] = [](Word* r, const Instruction& in) {
    const auto first = get<uint8_t>(r, in, 2), count = get<uint8_t>(r, in, 3);
    const uint64_t rest = first < 32 ? uint64_t{get<uint32_t>(r, in, 1)} >> first : 0;
    put<uint32_t>(r, in, static_cast<uint32_t>(count < 32 ? rest & ((uint64_t{1} << count) - 1) : rest));
  };
  // Byte i is the one of (b, a) that digit i of c names; with its highest bit, the sign of that byte at all places.
  all["prmt.b32"] = [](Word* r, const Instruction& in) {
    const Word bytes = get<uint32_t>(r, in, 1) | static_cast<Word>(get<uint32_t>(r, in, 2)) << 32;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t digit = get<uint32_t>(r, in, 3) >> (4 * i) & 0xF;
      const auto byte = static_cast<uint32_t>(bytes >> (8 * (digit & 7)) & 0xFF);
      result |= ((digit & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFF : 0) << (8 * i);
    }
    put<uint32_t>(r, in, result);
  };
  // Global memory and kernels' parameters are where they are for all.
  for (const char* name : {"cvta.global.u64", "cvta.to.global.u64", "cvta.param.u64"}) all[name] = all["mov.u64"];
  return all;
}

}  // namespace

Instruction::Compute operation(const std::string& name) {
  static const Operations all = make_operations();
  const auto found = all.find(name);
  return found != all.end() ? found->second : nullptr;
}

}  // namespace ulpscope::ptx
