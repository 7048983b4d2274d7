#include "ulpscope/emulation/tensor_core_lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/tensor_core_lanes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Products are exact in FP32, as are their multiples by powers of two; conversions to integers cut off towards zero. So no result
// depends on the CPU's rounding mode, and what it flushes to zero is below every last bit that is kept.

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Of the output's encodings: fraction bits, bias and width without the sign; of the conversion: the fraction bits that it keeps,
// and its rounding.
struct Fp32 {
  static constexpr int kFractionBits = 23, kBias = 127, kWidth = 31, kKeptBits = 23;
  static constexpr bool kNearestEven = false;
};
struct E8M13 : Fp32 {
  static constexpr int kKeptBits = 13;
};
struct Fp16 {
  static constexpr int kFractionBits = 10, kBias = 15, kWidth = 15, kKeptBits = 10;
  static constexpr bool kNearestEven = true;
};

// 16 products of less than 4 * 2^25 each are an int32.
constexpr int kInt32Products = 16;

// kValues: takes_values().
template <class Output, bool kValues>
class Sums {
  using D = hn::CappedTag<float, kPanel>;
  using I = hn::RebindToSigned<D>;
  using U = hn::RebindToUnsigned<D>;
  using Half = hn::Half<I>;
  using D64 = hn::Repartition<double, D>;
  using VF = hn::VFromD<D>;
  using VI = hn::VFromD<I>;
  using VU = hn::VFromD<U>;

  static constexpr uint32_t kSign = 1u << Output::kWidth, kMagnitude = kSign - 1;
  static constexpr uint32_t kImplicit = 1u << Output::kFractionBits;
  static constexpr uint32_t kInfinity = (2u * Output::kBias + 1) << Output::kFractionBits;

 public:
  static size_t Lanes() { return hn::Lanes(D()); }

  Sums(const TensorCoreModel& model, const LaneFactors& factors, size_t lane)
      : products_(model.products),
        fraction_bits_(model.fraction_bits),
        zero_exponent_(model.zero_exponent),
        factors_(factors),
        lane_(lane) {}

  HWY_INLINE VU Block(int64_t begin, VU accumulator) const {
    const I i32;
    const U u32;
    VI largest = hn::Set(i32, zero_exponent_);
    for (int64_t k = begin; k < begin + products_; ++k) largest = hn::Max(largest, Exponent(k));

    // The accumulator's significand as an integer, and the exponent of its field.
    const VU magnitude = hn::And(accumulator, hn::Set(u32, kMagnitude));
    const VU field = hn::ShiftRight<Output::kFractionBits>(magnitude);
    const VU fraction = hn::And(magnitude, hn::Set(u32, kImplicit - 1));
    const VU zero = hn::Zero(u32);
    const VU significand = hn::IfThenElse(hn::Eq(field, zero), fraction, hn::Or(fraction, hn::Set(u32, kImplicit)));
    VI exponent = hn::Sub(hn::BitCast(i32, hn::Max(field, hn::Set(u32, 1))), hn::Set(i32, Output::kBias));
    exponent = hn::IfThenElse(hn::RebindMask(i32, hn::Eq(magnitude, zero)), hn::Set(i32, kExponentOfZero), exponent);
    largest = hn::Max(largest, exponent);

    // Terms in units of 2^(largest - fraction_bits).
    const D d;
    const D64 d64;
    const Half half;
    const VI base = hn::Sub(hn::Set(i32, fraction_bits_ + 127), largest);
    const VI accumulator_base = hn::Sub(base, hn::Set(i32, Output::kFractionBits));
    const VF value = hn::Mul(hn::ConvertTo(d, hn::BitCast(i32, significand)), PowerOfTwo(hn::Add(exponent, accumulator_base)));
    const VF negative = hn::BitCast(d, hn::ShiftLeft<31 - Output::kWidth>(hn::And(accumulator, hn::Set(u32, kSign))));
    const VI term = Truncate(hn::Or(value, negative));
    auto low = hn::PromoteTo(d64, hn::LowerHalf(half, term)), high = hn::PromoteTo(d64, hn::UpperHalf(half, term));
    // One for all values. Where it is more than FP32 holds, there are no products but zeros.
    const VF unit = PowerOfTwo(hn::Min(base, hn::Set(i32, 254)));
    for (int64_t part = begin; part < begin + products_; part += kInt32Products) {
      const int64_t end = HWY_MIN(part + kInt32Products, begin + products_);
      VI sum = hn::Zero(i32);
      for (int64_t k = part; k < end; ++k) {
        if constexpr (kValues) {
          sum = hn::Add(sum, Truncate(hn::Mul(Product(k), unit)));
        } else {
          sum = hn::Add(sum, Truncate(hn::Mul(Product(k), PowerOfTwo(hn::Add(Exponent(k), base)))));
        }
      }
      low = hn::Add(low, hn::PromoteTo(d64, hn::LowerHalf(half, sum)));
      high = hn::Add(high, hn::PromoteTo(d64, hn::UpperHalf(half, sum)));
    }

    const VU upper = hn::ConcatOdd(u32, hn::BitCast(u32, high), hn::BitCast(u32, low));
    const VU lower = hn::ConcatEven(u32, hn::BitCast(u32, high), hn::BitCast(u32, low));
    const auto is_zero = hn::Eq(hn::Or(hn::And(upper, hn::Set(u32, 0x7FFFFFFF)), lower), zero);
    VU result = Convert(upper, lower, hn::Sub(largest, hn::Set(i32, fraction_bits_)));
    VU sign = hn::ShiftRight<31 - Output::kWidth>(hn::And(upper, hn::Set(u32, 0x80000000)));
    const auto may_be_negative_zero = hn::And(is_zero, hn::Eq(accumulator, hn::Set(u32, kSign)));
    sign = hn::IfThenZeroElse(is_zero, sign);
    if (HWY_UNLIKELY(!hn::AllFalse(u32, may_be_negative_zero)))
      sign = hn::Or(sign, hn::IfThenElseZero(hn::And(may_be_negative_zero, AllNegativeZero(begin)), hn::Set(u32, kSign)));
    result = hn::Or(hn::IfThenZeroElse(is_zero, result), sign);

    if (factors_.a_special) return Special(begin, accumulator, magnitude, result);
    // Inf stays; a NaN has the one encoding.
    const VU infinity = hn::Set(u32, kInfinity);
    result = hn::IfThenElse(hn::Eq(magnitude, infinity), accumulator, result);
    return hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(u32, kMagnitude), result);
  }

 private:
  HWY_INLINE VI Exponent(int64_t k) const {
    const I i32;
    return hn::Add(hn::Set(i32, factors_.a_exponents[k]), hn::LoadU(i32, factors_.b_exponents + k * kPanel + lane_));
  }
  HWY_INLINE VF Product(int64_t k) const {
    const D d;
    return hn::Mul(hn::Set(d, factors_.a[k]), hn::LoadU(d, factors_.b + k * kPanel + lane_));
  }
  // To an integer, which is one of int32: Highway's function takes three more instructions to look after others.
  static HWY_INLINE VI Truncate(VF value) {
#if HWY_TARGET == HWY_AVX3
    return VI{_mm512_cvttps_epi32(value.raw)};
#elif HWY_TARGET == HWY_AVX2
    return VI{_mm256_cvttps_epi32(value.raw)};
#elif HWY_TARGET == HWY_SSE4
    return VI{_mm_cvttps_epi32(value.raw)};
#else
    return hn::ConvertTo(I(), value);
#endif
  }
  // 2^(field - 127), or 0 below that: the field of FP32.
  static HWY_INLINE VF PowerOfTwo(VI field) {
    const I i32;
    return hn::BitCast(D(), hn::ShiftLeft<23>(hn::Max(field, hn::Zero(i32))));
  }

  // The magnitude's encoding of an FP64 number, not zero, times 2^unit. The number has at most 34 bits.
  static HWY_INLINE VU Convert(VU upper, VU lower, VI unit) {
    const I i32;
    const U u32;
    const VU one = hn::Set(u32, 1);
    // 31 bits of the significand from its leading one, which is bit 30; the last of them tells whether others follow.
    const VU following = hn::Set(u32, 0x3FFFFF);
    VU significand = hn::Or(hn::ShiftLeft<10>(hn::And(upper, hn::Set(u32, 0xFFFFF))), hn::ShiftRight<22>(lower));
    significand = hn::Or(significand, hn::Set(u32, 1u << 30));
    if constexpr (Output::kNearestEven)
      significand = hn::Or(significand, hn::IfThenElseZero(hn::Ne(hn::And(lower, following), hn::Zero(u32)), one));
    const VU double_field = hn::And(hn::ShiftRight<20>(upper), hn::Set(u32, 0x7FF));
    const VI exponent = hn::Add(hn::Sub(hn::BitCast(i32, double_field), hn::Set(i32, 1023)), unit);
    // Fields below 1 are those of subnormal numbers, whose significands are shifted out.
    const VI field = hn::Add(exponent, hn::Set(i32, Output::kBias));
    const VI below = hn::Max(hn::Sub(hn::Set(i32, 1), field), hn::Zero(i32));
    const VI shift = hn::Add(below, hn::Set(i32, 30 - Output::kKeptBits));
    const VU bits = hn::BitCast(u32, hn::Min(shift, hn::Set(i32, 31)));
    if constexpr (Output::kNearestEven) {
      significand = hn::IfThenZeroElse(hn::RebindMask(u32, hn::Gt(shift, hn::Set(i32, 31))), significand);
      const VU odd = hn::And(hn::Shr(significand, bits), one);
      const VU below_half = hn::Sub(hn::Shl(one, hn::Sub(bits, one)), one);
      significand = hn::Add(significand, hn::Add(below_half, odd));
    }
    const VU kept = hn::Shr(significand, bits);
    // A normal significand's leading one counts as one in the field, as does a carry.
    const VI before = hn::Min(hn::Max(hn::Sub(field, hn::Set(i32, 1)), hn::Zero(i32)), hn::Set(i32, 2 * Output::kBias + 1));
    const VU whole = hn::Add(hn::ShiftLeft<Output::kKeptBits>(hn::BitCast(u32, before)), kept);
    constexpr int kShift = Output::kFractionBits - Output::kKeptBits;
    return hn::ShiftLeft<kShift>(hn::Min(whole, hn::Set(u32, kInfinity >> kShift)));
  }

  HWY_NOINLINE hn::MFromD<U> AllNegativeZero(int64_t begin) const {
    const U u32;
    VU all = hn::Set(u32, ~0u);
    const VU negative_zero = hn::Set(u32, 0x80000000);
    for (int64_t k = begin; k < begin + products_; ++k)
      all = hn::And(all, hn::VecFromMask(u32, hn::Eq(hn::BitCast(u32, Product(k)), negative_zero)));
    return hn::Ne(all, hn::Zero(u32));
  }

  // Where NaN or Inf is among the factors or in the accumulator, IEEE arithmetic on these and on finite numbers without overflow
  // decides; elsewhere the result stays.
  HWY_NOINLINE VU Special(int64_t begin, VU accumulator, VU magnitude, VU result) const {
    const D d;
    const U u32;
    const VU infinity = hn::Set(u32, kInfinity), nan = hn::Set(u32, kMagnitude);
    const auto sign_of = [&](VU bits) HWY_ATTR { return hn::ShiftLeft<31 - Output::kWidth>(hn::And(bits, hn::Set(u32, kSign))); };
    VU start = hn::Or(hn::Set(u32, 0x7F800000), sign_of(accumulator));
    start = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(u32, 0x7FC00000), start);
    VF sum = hn::BitCast(d, hn::IfThenZeroElse(hn::Lt(magnitude, infinity), start));
    for (int64_t k = begin; k < begin + products_; ++k) {
      const VF b = hn::LoadU(d, factors_.b_special + k * kPanel + lane_);
      sum = hn::Add(sum, hn::Mul(hn::Set(d, factors_.a_special[k]), b));
    }
    const VU bits = hn::BitCast(u32, sum);
    const VU sum_sign = hn::ShiftRight<31 - Output::kWidth>(hn::And(bits, hn::Set(u32, 0x80000000)));
    const VU sum_magnitude = hn::And(bits, hn::Set(u32, 0x7FFFFFFF)), sum_infinity = hn::Set(u32, 0x7F800000);
    result = hn::IfThenElse(hn::Eq(sum_magnitude, sum_infinity), hn::Or(infinity, sum_sign), result);
    return hn::IfThenElse(hn::Gt(sum_magnitude, sum_infinity), nan, result);
  }

  const int64_t products_;
  const int fraction_bits_, zero_exponent_;
  const LaneFactors& factors_;
  const size_t lane_;
};

template <class Output, bool kValues>
void SumBlocksAs(const TensorCoreModel& model, const LaneFactors* rows, int count, int64_t blocks,
                 uint32_t* HWY_RESTRICT accumulators) {
  static_assert(kLaneRows == 2);
  const hn::CappedTag<uint32_t, kPanel> u32;
  for (size_t lane = 0; lane < kPanel; lane += hn::Lanes(u32)) {
    const Sums<Output, kValues> first(model, rows[0], lane);
    auto accumulator = hn::LoadU(u32, accumulators + lane);
    if (count == 1) {
      for (int64_t block = 0; block < blocks; ++block) accumulator = first.Block(block * model.products, accumulator);
    } else {
      const Sums<Output, kValues> second(model, rows[1], lane);
      auto other = hn::LoadU(u32, accumulators + kPanel + lane);
      for (int64_t block = 0; block < blocks; ++block) {
        accumulator = first.Block(block * model.products, accumulator);
        other = second.Block(block * model.products, other);
      }
      hn::StoreU(other, u32, accumulators + kPanel + lane);
    }
    hn::StoreU(accumulator, u32, accumulators + lane);
  }
}

template <bool kValues>
void SumBlocks(const TensorCoreModel& model, const LaneFactors* rows, int count, int64_t blocks, uint32_t* accumulators) {
  if (model.output == &binary16) return SumBlocksAs<Fp16, kValues>(model, rows, count, blocks, accumulators);
  if (model.conversion == &e8m13) return SumBlocksAs<E8M13, kValues>(model, rows, count, blocks, accumulators);
  SumBlocksAs<Fp32, kValues>(model, rows, count, blocks, accumulators);
}
void SumBlocksOfValues(const TensorCoreModel& model, const LaneFactors* rows, int count, int64_t blocks, uint32_t* accumulators) {
  SumBlocks<true>(model, rows, count, blocks, accumulators);
}
void SumBlocksOfSignificands(const TensorCoreModel& model, const LaneFactors* rows, int count, int64_t blocks,
                             uint32_t* accumulators) {
  SumBlocks<false>(model, rows, count, blocks, accumulators);
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(SumBlocksOfValues);
HWY_EXPORT(SumBlocksOfSignificands);

bool takes_values(const TensorCore& core) {
  const TensorCoreModel& model = *core.model;
  const FloatFormat &a = model.factors ? *model.factors : *core.a, &b = model.factors ? *model.factors : *core.b;
  const int smallest = a.smallest_exponent() + b.smallest_exponent(), largest = a.largest_exponent() + b.largest_exponent();
  return model.scales == BlockScales::none && largest < binary32.largest_exponent() &&
         smallest - largest + model.fraction_bits >= binary32.smallest_normal_exponent();
}

void sum_blocks(const TensorCore& core, const LaneFactors* rows, int count, int64_t blocks, uint32_t* accumulators) {
  if (takes_values(core)) {
    HWY_DYNAMIC_DISPATCH(SumBlocksOfValues)(*core.model, rows, count, blocks, accumulators);
  } else {
    HWY_DYNAMIC_DISPATCH(SumBlocksOfSignificands)(*core.model, rows, count, blocks, accumulators);
  }
}

}  // namespace ulpscope

#endif
