// The vector loops of block_format.h. Scales that are powers of two divide exactly, so elements are rounded as round_array.h does
// it. With another divisor d, |value| is multiplied by numbers just below and just above 1 / d, and both products are rounded:
// where they become the same element, so does the quotient between them. Where they do not, which is next to the middle of two
// elements, an element's number is counted up: one more for each middle that |value| / d is above, which is the sign of |value| -
// middle * d, and a fused multiply-add has the sign of the exact difference.
#include <bit>
#include <cmath>
#include <limits>

#include "ulpscope/emulation/block_kernel.h"
#include "ulpscope/emulation/round_kernel.h"
#include "ulpscope/emulation/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/block_lanes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ulpscope/emulation/round_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

constexpr size_t kBlockLanes = hn::MaxLanes(F32());

size_t QuantizePowers(const RoundConstants& constants, const PowerScales& scales, const float* in, size_t blocks, uint8_t* elements,
                      uint8_t* scale_encodings) {
  const RoundConstants k = constants;
  const PowerScales s = scales;
  for (size_t block = 0; block < blocks; ++block) {
    VU32 largest = hn::Zero(kU32);
    for (size_t i = 0; i < s.block_size; i += kBlockLanes) {
      const VU32 magnitude = hn::And(AsBits(hn::LoadU(kF32, in + i)), Set(0x7FFFFFFF));
      largest = hn::BitCast(kU32, hn::Max(hn::BitCast(kI32, largest), hn::BitCast(kI32, magnitude)));
    }
    largest = hn::MaxOfLanes(kU32, largest);
    // FP32 and e8m0 have one bias. What is below e8m0's range, zero included, has its smallest scale.
    const uint32_t bits = hn::GetLane(largest);
    const bool is_finite = bits < 0x7F800000;
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) >= s.rounded_up_from ? 1 : 0);
    const uint32_t scale = !is_finite ? 255 : exponent > s.element_exponent ? exponent - s.element_exponent : 0;
    *scale_encodings++ = static_cast<uint8_t>(scale);
    const VF32 factor = AsFloat(Set(is_finite ? (254 - scale) << 23 : 0));
    const VU32 kept = Set(is_finite ? ~0u : 0);
    for (size_t i = 0; i < s.block_size; i += kBlockLanes) {
      const VU32 quotient = hn::And(AsBits(hn::Mul(hn::LoadU(kF32, in + i), factor)), kept);
      Put(Round<RoundingMode::nearest_even, RoundingCore::scaled, true, true>(k, quotient), elements + i);
    }
    in += s.block_size;
    elements += s.block_size;
  }
  return blocks;
}

// The scales of blocks with these largest magnitudes: quotients in FP64, rounded to e4m3 by the addition of a power of two whose
// ulp is its step.
template <class D64, class V>
HWY_INLINE V RoundToE4m3(D64 d, V quotient) {
  const hn::RebindToUnsigned<D64> u64;
  const auto exponent = hn::And(quotient, hn::BitCast(d, hn::Set(u64, uint64_t{0x7FF} << 52)));
  const auto smallest = hn::Set(d, 0x1p-6);
  const auto power = hn::Mul(hn::Max(exponent, smallest), hn::Set(d, 0x1p49));
  const auto rounded = hn::Sub(hn::Add(quotient, power), power);
  return hn::Max(hn::Min(rounded, hn::Set(d, 448.0)), hn::Set(d, 0x1p-9));
}

#if HWY_TARGET <= HWY_AVX2
// The largest lanes of as many vectors as one has lanes, in their order.
template <size_t kVectors>
HWY_INLINE VF32 LargestOfEach(VF32* vectors) {
  if constexpr (kVectors == 1) {
    return vectors[0];
  } else {
    for (size_t i = 0; i < kVectors; i += 2) {
      const VF32 even = hn::ConcatEven(kF32, vectors[i + 1], vectors[i]), odd = hn::ConcatOdd(kF32, vectors[i + 1], vectors[i]);
      vectors[i / 2] = hn::Max(even, odd);
    }
    return LargestOfEach<kVectors / 2>(vectors);
  }
}

// The numbers of the elements of e2m1 that |value| / divisor is next to, exactly.
HWY_INLINE VU32 CountMiddles(VF32 magnitude, VF32 divisor) {
  VU32 number = hn::Zero(kU32);
  // Middles are given with the parity of the number below them: a tie goes to the even one.
  const auto count = [&](float middle, auto compare) HWY_ATTR {
    const VF32 rest = hn::NegMulAdd(hn::Set(kF32, middle), divisor, magnitude);
    number = hn::Sub(number, hn::BitCast(kU32, hn::VecFromMask(kF32, compare(rest, hn::Zero(kF32)))));
  };
  const auto above_even = [](VF32 a, VF32 b) HWY_ATTR { return hn::Gt(a, b); };
  const auto above_odd = [](VF32 a, VF32 b) HWY_ATTR { return hn::Ge(a, b); };
  count(0.25f, above_even);
  count(0.75f, above_odd);
  count(1.25f, above_even);
  count(1.75f, above_odd);
  count(2.5f, above_even);
  count(3.5f, above_odd);
  count(5.0f, above_even);
  return number;
}

// As CountMiddles; `below` and `above` enclose 1 / divisor.
HWY_INLINE VU32 NumberOfQuotient(VF32 magnitude, VF32 divisor, VF32 below, VF32 above) {
  constexpr uint32_t kOne = 0x3F800000;  // bits of 1, e2m1's smallest normal number; its step is 1/2 there, as below it
  const VF32 low = hn::Mul(magnitude, below), high = hn::Mul(magnitude, above);
  const VU32 exponent = hn::BitCast(kU32, hn::Max(hn::BitCast(kI32, hn::And(AsBits(low), Set(0x7F800000))), hn::Set(kI32, kOne)));
  const VU32 power = hn::Add(exponent, Set(22u << 23));  // whose ulp is the step
  const VF32 sum = hn::Add(low, AsFloat(power));
  const auto same = hn::Eq(sum, hn::Add(high, AsFloat(power)));
  if (HWY_UNLIKELY(!hn::AllTrue(kF32, same))) return CountMiddles(magnitude, divisor);
  const VU32 number = hn::Add(hn::ShiftRight<22>(hn::Sub(exponent, Set(kOne))), hn::Sub(AsBits(sum), power));
  return hn::Min(number, Set(7));
}
#endif

// Sixteen blocks of sixteen at a time.
size_t QuantizeQuotients(const RoundConstants& scale_constants, float tensor_scale, const float* in, size_t blocks,
                         uint8_t* elements, uint8_t* scale_encodings) {
#if HWY_TARGET <= HWY_AVX2
  constexpr size_t kBlock = 16;
  const RoundConstants k = scale_constants;
  const hn::ScalableTag<double> f64;
  const hn::Rebind<float, decltype(f64)> part;
  const auto divisor64 = hn::Set(f64, 6 * static_cast<double>(tensor_scale));
  alignas(64) float scales[kBlock], divisors[kBlock], below[kBlock], above[kBlock];
  size_t done = 0;
  for (; done + kBlock <= blocks; done += kBlock) {
    for (size_t block = 0; block < kBlock; block += kBlockLanes) {
      VF32 largest[kBlockLanes];
      for (size_t j = 0; j < kBlockLanes; ++j) {
        const float* values = in + (block + j) * kBlock;
        largest[j] = hn::Abs(hn::LoadU(kF32, values));
        for (size_t i = kBlockLanes; i < kBlock; i += kBlockLanes)
          largest[j] = hn::Max(largest[j], hn::Abs(hn::LoadU(kF32, values + i)));
      }
      hn::Store(LargestOfEach<kBlockLanes>(largest), kF32, scales + block);
    }
    for (size_t block = 0; block < kBlock; block += hn::Lanes(f64)) {
      const auto quotient = hn::Div(hn::PromoteTo(f64, hn::Load(part, scales + block)), divisor64);
      hn::Store(hn::DemoteTo(part, RoundToE4m3(f64, quotient)), part, scales + block);
    }
    for (size_t block = 0; block < kBlock; block += kBlockLanes) {
      const VF32 scale = hn::Load(kF32, scales + block), divisor = hn::Mul(scale, hn::Set(kF32, tensor_scale));
      Put(Round<RoundingMode::nearest_even, RoundingCore::scaled, true, true>(k, AsBits(scale)), scale_encodings + block);
      // Two roundings, of this quotient and of a product, are off by less than 2^-22 of it, where both are normal numbers. NaN is
      // never the same as another.
      const auto is_normal = hn::And(hn::Ge(divisor, hn::Set(kF32, 0x1p-120f)), hn::Le(divisor, hn::Set(kF32, 0x1p120f)));
      const VF32 reciprocal = hn::IfThenElse(is_normal, hn::Div(hn::Set(kF32, 1.0f), divisor), hn::NaN(kF32));
      hn::Store(divisor, kF32, divisors + block);
      hn::Store(hn::Mul(reciprocal, hn::Set(kF32, 1 - 0x1p-20f)), kF32, below + block);
      hn::Store(hn::Mul(reciprocal, hn::Set(kF32, 1 + 0x1p-20f)), kF32, above + block);
    }
    for (size_t block = 0; block < kBlock; ++block) {
      const VF32 divisor = hn::Set(kF32, divisors[block]), low = hn::Set(kF32, below[block]), high = hn::Set(kF32, above[block]);
      for (size_t i = 0; i < kBlock; i += kBlockLanes) {
        const VF32 value = hn::LoadU(kF32, in + block * kBlock + i);
        const VU32 sign = hn::ShiftLeft<3>(hn::ShiftRight<31>(AsBits(value)));
        Put(hn::Or(NumberOfQuotient(hn::Abs(value), divisor, low, high), sign), elements + block * kBlock + i);
      }
    }
    in += kBlock * kBlock;
    elements += kBlock * kBlock;
    scale_encodings += kBlock;
  }
  return done;
#else
  (void)scale_constants, (void)tensor_scale, (void)in, (void)blocks, (void)elements, (void)scale_encodings;
  return 0;  // a product and a difference would be rounded each
#endif
}

uint32_t LargestMagnitude(const float* in, size_t count) {
  VU32 a = hn::Zero(kU32), b = a;
  const auto larger = [](VU32 x, const float* values) HWY_ATTR {
    const VU32 magnitude = hn::And(AsBits(hn::LoadU(kF32, values)), Set(0x7FFFFFFF));
    return hn::BitCast(kU32, hn::Max(hn::BitCast(kI32, x), hn::BitCast(kI32, magnitude)));
  };
  size_t i = 0;
  for (; i + 2 * kBlockLanes <= count; i += 2 * kBlockLanes) {
    a = larger(a, in + i);
    b = larger(b, in + i + kBlockLanes);
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(kU32, hn::Max(a, b)));
  for (; i < count; ++i) largest = HWY_MAX(largest, static_cast<uint32_t>(encoding_of(in[i])) & 0x7FFFFFFF);
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(QuantizePowers);
HWY_EXPORT(QuantizeQuotients);
HWY_EXPORT(LargestMagnitude);

// With it, no product of two scales is a subnormal number, or zero.
constexpr float kLeastTensorScale = 0x1p-110F;

size_t quantize_lanes(const BlockArray& array, std::span<const float> values, float largest, uint8_t* elements, uint8_t* scales) {
  const BlockFormat& format = *array.format;
  const size_t blocks = values.size() / format.block_size;
  const FloatingPointMode mode;
  if (format.scale == &e8m0 && !format.has_tensor_scale && format.block_size % 16 == 0 && format.rule != ScaleRule::nearest) {
    const RoundConstants constants = round_constants(*format.element, {.overflow = Overflow::saturate}, false);
    if (constants.core != RoundingCore::scaled) return 0;
    const auto largest_element = static_cast<float>(format.element->largest_finite());
    const auto fraction = static_cast<uint32_t>(encoding_of(largest_element)) & 0x7FFFFF;
    const PowerScales powers{format.block_size, static_cast<uint32_t>(format.element->largest_exponent()),
                             format.rule == ScaleRule::round_up ? fraction + 1 : uint32_t{1} << 23};
    return HWY_DYNAMIC_DISPATCH(QuantizePowers)(constants, powers, values.data(), blocks, elements, scales);
  }
  if (format.element == &e2m1 && format.scale == &e4m3 && format.has_tensor_scale && format.block_size == 16 &&
      format.rule == ScaleRule::nearest && std::isfinite(largest) && array.tensor_scale >= kLeastTensorScale) {
    const RoundConstants constants = round_constants(e4m3, {}, false);
    return HWY_DYNAMIC_DISPATCH(QuantizeQuotients)(constants, array.tensor_scale, values.data(), blocks, elements, scales);
  }
  return 0;
}

float largest_of_lanes(std::span<const float> values) {
  const float largest = std::bit_cast<float>(HWY_DYNAMIC_DISPATCH(LargestMagnitude)(values.data(), values.size()));
  return std::isfinite(largest) ? largest : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace ulpscope

#endif
