#include "ulpscope/kernels/output_rounding.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/emulation/magnitude_thresholds.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

// body(encodings), an array of the unsigned integers that elements of `dtype` are stored in. Void: void or const void.
template <typename Void, typename Body>
auto with_encodings(DType dtype, Void* elements, Body body) {
  const auto as = [&]<typename E>(E) { return static_cast<std::conditional_t<std::is_const_v<Void>, const E, E>*>(elements); };
  switch (info(dtype).size) {
    case sizeof(uint8_t):
      return body(as(uint8_t{}));
    case sizeof(uint16_t):
      return body(as(uint16_t{}));
    default:
      return body(as(uint32_t{}));
  }
}

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

// Whether the call's arithmetic acts on its tensors of this type.
bool acts_on(const OpCall& call, DType dtype) { return call.arithmetic != nullptr && is_float(dtype) && !only_moves(call.op); }

bool flushes_as_product(const OpCall& call, DType dtype) {
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  return is_half && flushes_narrow_products(call);
}

}  // namespace

bool flushes_narrow_products(const OpCall& call) {
  return call.arithmetic != nullptr && call.arithmetic->accumulation->flushes_narrow_products && is_product(call.op);
}

InputFlushCounts flush_counts(const FloatFormat& format, const TensorStatistics& statistics) {
  InputFlushCounts counts{statistics.finite_nonzero(), 0};
  const int normal = format.smallest_normal_exponent() + ExponentHistogram::kBias;
  for (int bin = 0; bin < normal; ++bin) counts.flushed += statistics.histogram.bins[static_cast<size_t>(bin)];
  return counts;
}

bool lost_more(const InputFlushCounts& a, const InputFlushCounts& b) {
  const auto share = [](const InputFlushCounts& counts) {
    return counts.nonzero == 0 ? -1.0 : static_cast<double>(counts.flushed) / static_cast<double>(counts.nonzero);
  };
  return share(a) > share(b);
}

uint64_t flush_subnormals(DType dtype, void* elements, int64_t n) {
  const FloatFormat& format = *info(dtype).format;
  return with_encodings(dtype, elements, [&](auto* encodings) { return flush(format, encodings, n); });
}

bool flushes_input(const OpCall& call, DType dtype) {
  if (!acts_on(call, dtype) || call.op == "fill") return false;
  return flushes_inputs(call.arithmetic->subnormals) || flushes_as_product(call, dtype);
}

Rounding output_rounding(const OpCall& call, int slot, DType stored) {
  Rounding rounding;
  if (is_quantized(stored)) rounding.overflow = Overflow::saturate;
  if (!acts_on(call, stored)) return rounding;
  rounding.mode = call.arithmetic->rounding;
  const bool flushes = flushes_outputs(call.arithmetic->subnormals) || (slot == 0 && flushes_as_product(call, stored));
  if (flushes) rounding.subnormals = SubnormalResults::flush;
  return rounding;
}

StepwiseRounding stepwise_rounding(const OpCall& call, int slot) {
  const FloatFormat& format = *info(call.outputs[static_cast<size_t>(slot)].dtype).format;
  const OutputRecord* record = call.records.empty() ? nullptr : call.records[static_cast<size_t>(slot)];
  return {format.smallest_normal(), (record == nullptr ? 1 : record->scale) * format.flush_threshold()};
}

void check_stepwise(const OpCall& call) {
  const bool is_stepwise = call.attributes != nullptr && call.attributes->value_or("stepwise", 0) != 0;
  if (!is_stepwise || call.outputs[0].dtype == DType::f32 || call.arithmetic == nullptr || !call.arithmetic->rounds_otherwise())
    return;
  throw usage_error(
      "{}: an update of {} parameters that rounds after every operation rounds to nearest even and keeps subnormals; expected "
      "optimizer.math = \"fp32\", which rounds once, or rounding = \"rne\" and subnormals = \"keep\" for {}",
      call.op, info(call.outputs[0].dtype).name, call.op);
}

OutputRounding::OutputRounding(const OpCall& call, int slot, DType stored)
    : stored_(stored),
      format_(*info(stored).format),
      rounding_(output_rounding(call, slot, stored)),
      random_{call.seed, hash_combine(call.stream, static_cast<uint64_t>(slot))} {}

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
  with_encodings(stored_, elements, [&](auto* encodings) {
    round_encodings(format_, rounding_, std::span(values, count), std::span(encodings, count),
                    {random_.seed, random_.stream, static_cast<uint64_t>(first)});
  });
}

CountedRounding OutputRounding::counted(double scale, bool of_double) const {
  Rounding rounding = rounding_;
  if (!of_double && stored_ == DType::f32) rounding.mode = RoundingMode::nearest_even;  // the kernel's
  return {.format = format_,
          .rounding = rounding,
          .smallest_normal = format_.smallest_normal(),
          .largest = format_.largest_finite(),
          .surely_beyond = magnitude_thresholds(format_, rounding_).beyond.surely_above(),
          .scale = scale,
          .counts_saturated = !is_quantized(stored_)};
}

template <typename C>
RoundingCounts OutputRounding::count_all(const C* values, int64_t first, int64_t n, const void* elements, double scale) const {
  const CountedRounding rounding = counted(scale, std::is_same_v<C, double>);
  RoundingCounts counts;
  with_encodings(stored_, elements, [&](const auto* encodings) {
    for (int64_t i = 0; i < n; ++i)
      rounding.count(values[i], encodings[i], counts, [&] { return random_bits_of(random_, static_cast<uint64_t>(first + i)); });
  });
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
