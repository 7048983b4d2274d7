#include "ulpscope/emulation/narrow_format.h"

#include <array>
#include <bit>
#include <span>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/simd_rounding.h"

namespace ulpscope {

namespace {

template <void (*round_array)(const float*, uint16_t*, size_t)>
void round_16(const float* in, void* out, size_t count) {
  round_array(in, static_cast<uint16_t*>(out), count);
}
template <void (*widen_array)(const uint16_t*, float*, size_t)>
void widen_16(const void* in, float* out, size_t count) {
  widen_array(static_cast<const uint16_t*>(in), out, count);
}

// A format of 8 bits.
constexpr Rounding kSaturating{.overflow = Overflow::saturate};

template <const FloatFormat& format>
constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (uint64_t encoding = 0; encoding < values.size(); ++encoding)
    values[encoding] = std::bit_cast<float>(static_cast<uint32_t>(convert(format, binary32, encoding)));
  return values;
}();

template <const FloatFormat& format>
uint16_t round_8(double value) {
  return static_cast<uint16_t>(round_to_encoding(format, value, kSaturating));
}
template <const FloatFormat& format>
float widen_8(uint16_t bits) {
  return kValues<format>[bits];
}
template <const FloatFormat& format>
void round_all_8(const float* in, void* out, size_t count) {
  round_encodings(format, kSaturating, std::span(in, count), std::span(static_cast<uint8_t*>(out), count));
}
template <const FloatFormat& format>
void widen_all_8(const void* in, float* out, size_t count) {
  const auto* encodings = static_cast<const uint8_t*>(in);
  for (size_t i = 0; i < count; ++i) out[i] = kValues<format>[encodings[i]];
}

template <const FloatFormat& format>
constexpr NarrowFormat row_8() {
  return {&format, 1, round_8<format>, widen_8<format>, round_all_8<format>, widen_all_8<format>};
}

constexpr NarrowFormat kNarrowFormats[] = {
    {&binary16, 2, round_to_f16, f16_to_float, round_16<round_to_f16>, widen_16<f16_to_float>},
    {&bfloat16, 2, round_to_bf16, bf16_to_float, round_16<round_to_bf16>, widen_16<bf16_to_float>},
    row_8<e4m3>(),
    row_8<e5m2>(),
};

}  // namespace

const NarrowFormat& narrow_format(const FloatFormat& format) {
  for (const NarrowFormat& narrow : kNarrowFormats) {
    if (narrow.format == &format) return narrow;
  }
  throw failed_error("internal: tensors are not stored in {}", format.name);
}

}  // namespace ulpscope
