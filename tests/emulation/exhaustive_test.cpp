// Roundings of FP32 to f16, bf16, TF32, E4M3 and E5M2 against a twin in integers that shares no line with the library, and against
// the CPU's own conversion to FP16: of all 2^32 numbers to nearest even, of 2^28 that are spread over them in every mode.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/simd_targets.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

// Written from the table of docs/emulation.md.
struct Conversion {
  const char* name;
  const FloatFormat& format;
  int bits, fraction_bits, bias;
  uint32_t largest;   // encoding
  uint32_t overflow;  // what is beyond it: Inf, or NaN where there is none
  uint32_t nan;       // the quiet one without a payload
  bool has_payload;   // of NaN: the leading bits of its fraction
};
void PrintTo(const Conversion& to, std::ostream* out) { *out << to.name; }

const Conversion kConversions[] = {{"f16", binary16, 16, 10, 15, 0x7BFF, 0x7C00, 0x7E00, true},
                                   {"bf16", bfloat16, 16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, true},
                                   {"tf32", tensor_float32, 19, 10, 127, 0x3FBFF, 0x3FC00, 0x3FE00, true},
                                   {"e4m3", e4m3, 8, 3, 7, 0x7E, 0x7F, 0x7F, false},
                                   {"e5m2", e5m2, 8, 2, 15, 0x7B, 0x7C, 0x7E, true}};

// `random` has 24 bits.
uint32_t twin(const Conversion& to, const Rounding& rounding, uint32_t value, uint32_t random) {
  const uint32_t magnitude = value & 0x7FFFFFFF, sign = value >> 31 << (to.bits - 1);
  if (magnitude > 0x7F800000) return sign | to.nan | (to.has_payload ? (magnitude & 0x7FFFFF) >> (23 - to.fraction_bits) : 0);
  const bool saturates = rounding.overflow == Overflow::saturate;
  if (magnitude == 0x7F800000) return sign | (saturates ? to.largest : to.overflow);

  const int field = static_cast<int>(magnitude >> 23), exponent = std::max(field, 1) - 127, lowest = 1 - to.bias;
  const uint64_t significand = (magnitude & 0x7FFFFF) | (field > 0 ? 0x800000 : 0);
  // Bits of the significand below the format's last place; beyond 48 there is nothing but bits below it.
  const int below = std::min(std::max(lowest - exponent, 0) + 23 - to.fraction_bits, 48);
  const uint64_t whole = significand >> below, rest = significand - (whole << below), half = uint64_t{1} << (below - 1);
  const bool negative = sign != 0;
  bool up = false;
  switch (rounding.mode) {
    case RoundingMode::nearest_even:
      up = rest > half || (rest == half && whole % 2 == 1);
      break;
    case RoundingMode::nearest_away:
      up = rest >= half;
      break;
    case RoundingMode::toward_zero:
      break;
    case RoundingMode::up:
      up = rest != 0 && !negative;
      break;
    case RoundingMode::down:
      up = rest != 0 && negative;
      break;
    case RoundingMode::to_odd:
      up = rest != 0 && whole % 2 == 0;
      break;
    case RoundingMode::stochastic:
      // rest / 2^below + random / 2^24 >= 1, where what is below 2^-24 of a step does not count.
      up = ((rest << 24 >> below) + random) >> 24 != 0;
      break;
  }
  const auto binades = static_cast<uint64_t>(std::max(exponent - lowest, 0));
  const uint64_t encoding = (binades << to.fraction_bits) + whole + (up ? 1 : 0);
  if (encoding > to.largest) {
    const bool towards_zero = rounding.mode == RoundingMode::toward_zero || rounding.mode == RoundingMode::to_odd ||
                              (rounding.mode == RoundingMode::up && negative) || (rounding.mode == RoundingMode::down && !negative);
    return sign | (saturates || towards_zero ? to.largest : to.overflow);
  }
  if (rounding.subnormals == SubnormalResults::flush && encoding < uint64_t{1} << to.fraction_bits) return sign;
  return sign | static_cast<uint32_t>(encoding);
}

constexpr size_t kChunk = 1 << 16;

// The library's results for a chunk of values: encodings, and TF32's from the FP32 numbers that they are the upper bits of.
void round(const Conversion& to, const Rounding& rounding, const std::vector<float>& values, const RandomStream& random,
           std::vector<uint32_t>& encodings) {
  const auto take = [&](const auto& rounded) {
    for (size_t i = 0; i < kChunk; ++i) encodings[i] = rounded[i];
  };
  if (to.bits <= 8) {
    static std::vector<uint8_t> bytes(kChunk);
    round_encodings(to.format, rounding, values, bytes, random);
    take(bytes);
  } else if (to.bits <= 16) {
    static std::vector<uint16_t> words(kChunk);
    round_encodings(to.format, rounding, values, words, random);
    take(words);
  } else {
    static std::vector<float> rounded(kChunk);
    round_values(to.format, rounding, values, rounded, random);
    for (size_t i = 0; i < kChunk; ++i) encodings[i] = std::bit_cast<uint32_t>(rounded[i]) >> (32 - to.bits);
  }
}

// The library's values in FP32, against the encodings that were found right.
void check_values(const Conversion& to, const Rounding& rounding, const std::vector<float>& values, const RandomStream& random,
                  const std::vector<uint32_t>& encodings) {
  static std::vector<float> rounded(kChunk);
  round_values(to.format, rounding, values, rounded, random);
  for (size_t i = 0; i < kChunk; ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), convert(to.format, binary32, encodings[i])) << values[i];
}

__attribute__((target("avx,f16c"))) void convert_by_cpu(const float* values, uint16_t* encodings) {
  for (size_t i = 0; i < kChunk; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(encodings + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), 0));
}

std::string conversion_name(const testing::TestParamInfo<Conversion>& format) { return format.param.name; }
class ExhaustiveSlow : public testing::TestWithParam<Conversion> {};
INSTANTIATE_TEST_SUITE_P(Formats, ExhaustiveSlow, testing::ValuesIn(kConversions), conversion_name);

// Under sanitizers every 61st chunk.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kStep = 61;
#else
constexpr uint32_t kStep = 1;
#endif

TEST_P(ExhaustiveSlow, NearestEvenOfEveryFloat) {
  const Conversion& to = GetParam();
  const bool compares_cpu = &to.format == &binary16 && __builtin_cpu_supports("f16c") != 0;
  std::vector<float> values(kChunk);
  std::vector<uint32_t> expected(kChunk), found(kChunk);
  std::vector<uint16_t> of_cpu(kChunk);
  for (uint32_t chunk = 0; chunk < 1 << 16; chunk += kStep) {
    for (uint32_t i = 0; i < kChunk; ++i) {
      values[i] = std::bit_cast<float>(chunk * uint32_t{kChunk} + i);
      expected[i] = twin(to, {}, chunk * uint32_t{kChunk} + i, 0);
    }
    on_every_target([&](const std::string& target) {
      round(to, {}, values, {}, found);
      ASSERT_EQ(found, expected) << target << ", chunk " << chunk;
    });
    if (HasFatalFailure()) return;
    if (chunk % 64 == 0) check_values(to, {}, values, {}, expected);
    if (!compares_cpu) continue;
    convert_by_cpu(values.data(), of_cpu.data());
    for (size_t i = 0; i < kChunk; ++i) ASSERT_EQ(of_cpu[i], expected[i]) << values[i];
  }
}

// The random bits of a chunk's elements, 24 of each, from the definition in round_array.h.
void random_bits(const RandomStream& random, std::vector<uint32_t>& bits) {
  const auto words = [&](uint64_t counter) {
    return philox4x32<7>({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                          static_cast<uint32_t>(random.stream), static_cast<uint32_t>(random.stream >> 32)},
                         {static_cast<uint32_t>(random.seed), static_cast<uint32_t>(random.seed >> 32)});
  };
  for (size_t i = 0; i < kChunk; i += 8) {
    const std::array<uint32_t, 4> first = words((random.first + i) / 8);
    const std::array<uint32_t, 4> further = words((random.first + i) / 8 + (uint64_t{1} << 61));
    for (size_t j = 0; j < 8; ++j) {
      const int half = static_cast<int>(j % 2) * 16;
      bits[i + j] = (first[j / 2] >> half & 0xFFFF) << 8 | (further[j / 2] >> half & 0xFFFF) >> 8;
    }
  }
}

TEST_P(ExhaustiveSlow, EveryModeOfFloatsSpreadOverAll) {
  const Conversion& to = GetParam();
  std::vector<float> values(kChunk);
  std::vector<uint32_t> expected(kChunk), found(kChunk), random(kChunk);
  for (uint32_t chunk = 0; chunk < 1 << 12; chunk += kStep) {
    // One of each 16 neighbours, by a multiplicative hash.
    for (uint32_t i = 0; i < kChunk; ++i) {
      const uint32_t index = chunk * uint32_t{kChunk} + i;
      values[i] = std::bit_cast<float>(index << 4 | index * 0x9E3779B1u >> 28);
    }
    const RandomStream stream{3, 4, uint64_t{chunk} * kChunk};
    random_bits(stream, random);
    for (const RoundingModeName& mode : rounding_modes()) {
      for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
        for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush}) {
          const Rounding rounding{.mode = mode.mode, .overflow = overflow, .subnormals = subnormals};
          for (size_t i = 0; i < kChunk; ++i) expected[i] = twin(to, rounding, std::bit_cast<uint32_t>(values[i]), random[i]);
          round(to, rounding, values, stream, found);
          ASSERT_EQ(found, expected) << mode.name << ", chunk " << chunk;
          if (chunk % 64 == 0) check_values(to, rounding, values, stream, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope
