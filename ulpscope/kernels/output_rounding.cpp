#include "ulpscope/kernels/output_rounding.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "ulpscope/base/hash.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

template <typename Encoding>
uint64_t flush(const FloatFormat& format, Encoding* encodings, int64_t n) {
  const auto fraction = static_cast<Encoding>((Encoding{1} << format.fraction_bits) - 1);
  const auto magnitude = static_cast<Encoding>(format.last_magnitude()), sign = static_cast<Encoding>(~magnitude);
  uint64_t flushed = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto field = static_cast<Encoding>(encodings[i] & magnitude);
    const bool subnormal = field != 0 && field <= fraction;
    flushed += subnormal;
    if (subnormal) encodings[i] = static_cast<Encoding>(encodings[i] & sign);
  }
  return flushed;
}

bool flushes(const OpCall& call, int slot, DType stored) {
  const Arithmetic& how = *call.arithmetic;
  const bool as_product = how.accumulation->flushes_narrow_products && is_product(call.op) && slot == 0 && stored != DType::f32;
  return flushes_outputs(how.subnormals) || as_product;
}

}  // namespace

uint64_t flush_subnormals(DType dtype, void* elements, int64_t n) {
  const FloatFormat& format = *info(dtype).format;
  return dtype == DType::f32 ? flush(format, static_cast<uint32_t*>(elements), n)
                             : flush(format, static_cast<uint16_t*>(elements), n);
}

OutputRounding::OutputRounding(const OpCall& call, int slot, DType stored)
    : stored_(stored), format_(*info(stored).format), random_{call.seed, hash_combine(call.stream, static_cast<uint64_t>(slot))} {
  if (call.arithmetic == nullptr) return;
  rounding_.mode = call.arithmetic->rounding;
  if (ulpscope::flushes(call, slot, stored)) rounding_.subnormals = SubnormalResults::flush;
}

template <typename C>
void OutputRounding::round_all(const C* values, int64_t first, int64_t n, void* elements) const {
  const auto count = static_cast<size_t>(n);
  if constexpr (std::is_same_v<C, float>) {
    if (stored_ == DType::f32) {
      if (values != elements) std::memcpy(elements, values, count * sizeof(float));
      if (flushes()) flush_subnormals(stored_, elements, n);
      return;
    }
  }
  const Encodings encodings = stored_ == DType::f32 ? Encodings(std::span(static_cast<uint32_t*>(elements), count))
                                                    : Encodings(std::span(static_cast<uint16_t*>(elements), count));
  round_encodings(format_, rounding_, std::span(values, count), encodings,
                  {random_.seed, random_.stream, static_cast<uint64_t>(first)});
}

template <typename C>
RoundingCounts OutputRounding::count_all(const C* values, int64_t first, int64_t n, const void* elements, double scale) const {
  const double smallest_normal = format_.smallest_normal();
  Rounding rounding = rounding_;
  if (std::is_same_v<C, float> && stored_ == DType::f32) rounding.mode = RoundingMode::nearest_even;  // the kernel's
  RoundingCounts counts;
  for (int64_t i = 0; i < n; ++i) {
    const double was = std::abs(static_cast<double>(values[i]));
    if (!(was > 0) || std::isinf(was)) continue;
    const uint64_t encoding =
        stored_ == DType::f32 ? static_cast<const uint32_t*>(elements)[i] : static_cast<const uint16_t*>(elements)[i];
    const double is = std::abs(value_of(format_, encoding));
    counts.flushed += is == 0;
    counts.overflowed += std::isinf(is);
    if (is > 0 && is < smallest_normal) {
      ++counts.subnormal;
      counts.inexact_subnormal += is != was;
    }
    if (!(is > 0) || std::isinf(is) || was >= scale * smallest_normal) continue;
    const uint32_t bits = random_bits_of(random_, static_cast<uint64_t>(first + i));
    const uint64_t unscaled = round_to_encoding(format_, static_cast<double>(values[i]) / scale, rounding, bits);
    counts.rescued += (unscaled & format_.last_magnitude()) == 0;
  }
  return counts;
}

double OutputRounding::rounded(double value, int64_t element) const {
  const uint32_t bits = random_bits_of(random_, static_cast<uint64_t>(element));
  return round_to_format(format_, value, rounding_, bits);
}

void OutputRounding::round(const float* values, int64_t first, int64_t n, void* elements) const {
  round_all(values, first, n, elements);
}
void OutputRounding::round(const double* values, int64_t first, int64_t n, void* elements) const {
  round_all(values, first, n, elements);
}
RoundingCounts OutputRounding::count(const float* values, int64_t first, int64_t n, const void* elements, double scale) const {
  return count_all(values, first, n, elements, scale);
}
RoundingCounts OutputRounding::count(const double* values, int64_t first, int64_t n, const void* elements, double scale) const {
  return count_all(values, first, n, elements, scale);
}

}  // namespace ulpscope
