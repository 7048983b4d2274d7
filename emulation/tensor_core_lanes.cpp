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

// What sums have in common that begin with an accumulator and end as one.
template <class Output>
class OutputLanes {
 public:
  static size_t Lanes() { return hn::Lanes(D()); }

 protected:
  using D = hn::CappedTag<float, kPanel>;
  using I = hn::RebindToSigned<D>;
  using U = hn::RebindToUnsigned<D>;
  using Half = hn::Half<I>;
  using D64 = hn::Repartition<double, D>;
  using VF = hn::VFromD<D>;
  using VI = hn::VFromD<I>;
  using VU = hn::VFromD<U>;
  using VD = hn::VFromD<D64>;

  static constexpr uint32_t kSign = 1u << Output::kWidth, kMagnitude = kSign - 1;
  static constexpr uint32_t kImplicit = 1u << Output::kFractionBits;
  static constexpr uint32_t kInfinity = (2u * Output::kBias + 1) << Output::kFractionBits;

  // The significand of an accumulator as an integer, and the exponent of its field.
  static HWY_INLINE VU Significand(VU magnitude) {
    const U u32;
    const VU fraction = hn::And(magnitude, hn::Set(u32, kImplicit - 1));
    const auto is_subnormal = hn::Eq(hn::ShiftRight<Output::kFractionBits>(magnitude), hn::Zero(u32));
    return hn::IfThenElse(is_subnormal, fraction, hn::Or(fraction, hn::Set(u32, kImplicit)));
  }
  static HWY_INLINE VI ExponentOf(VU magnitude) {
    const I i32;
    const U u32;
    const VU field = hn::ShiftRight<Output::kFractionBits>(magnitude);
    const VI exponent = hn::Sub(hn::BitCast(i32, hn::Max(field, hn::Set(u32, 1))), hn::Set(i32, Output::kBias));
    return hn::IfThenElse(hn::RebindMask(i32, hn::Eq(magnitude, hn::Zero(u32))), hn::Set(i32, kExponentOfZero), exponent);
  }

  // Of one element of a row and a vector of a panel.
  static HWY_INLINE VI SumOf(const int32_t* one, const int32_t* many) {
    const I i32;
    return hn::Add(hn::Set(i32, *one), hn::LoadU(i32, many));
  }
  static HWY_INLINE VF ProductOf(const float* one, const float* many) {
    const D d;
    return hn::Mul(hn::Set(d, *one), hn::LoadU(d, many));
  }

  // The two words of FP64 numbers.
  static HWY_INLINE VU UpperWords(VD low, VD high) {
    const U u32;
    return hn::ConcatOdd(u32, hn::BitCast(u32, high), hn::BitCast(u32, low));
  }
  static HWY_INLINE VU LowerWords(VD low, VD high) {
    const U u32;
    return hn::ConcatEven(u32, hn::BitCast(u32, high), hn::BitCast(u32, low));
  }

  // The encodings of sums that are given in units of 2^unit. A zero, also one that rounding makes, is +0.
  static HWY_INLINE VU FromSum(VD low, VD high, VI unit) {
    const U u32;
    const VU zero = hn::Zero(u32);
    const VU upper = UpperWords(low, high), lower = LowerWords(low, high);
    const auto is_zero = hn::Eq(hn::Or(hn::And(upper, hn::Set(u32, 0x7FFFFFFF)), lower), zero);
    const VU result = hn::IfThenZeroElse(is_zero, Convert(upper, lower, unit));
    const VU sign = hn::ShiftRight<31 - Output::kWidth>(hn::And(upper, hn::Set(u32, 0x80000000)));
    return hn::IfThenElseZero(hn::Ne(result, zero), hn::Or(result, sign));
  }
  // An accumulator of Inf stays; a NaN has the one encoding.
  static HWY_INLINE VU KeepSpecial(VU accumulator, VU magnitude, VU result) {
    const U u32;
    const VU infinity = hn::Set(u32, kInfinity);
    result = hn::IfThenElse(hn::Eq(magnitude, infinity), accumulator, result);
    return hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(u32, kMagnitude), result);
  }

 private:
  // The magnitude's encoding of an FP64 number, not zero, times 2^unit. Of more than 31 bits the others count as much as a rounding
  // to nearest asks.
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
};

// kValues: takes_values().
template <class Output, bool kValues>
class Sums : OutputLanes<Output> {
  using Base = OutputLanes<Output>;
  using Base::kImplicit, Base::kInfinity, Base::kMagnitude, Base::kSign;
  using typename Base::D, typename Base::I, typename Base::U, typename Base::Half, typename Base::D64;
  using typename Base::VF, typename Base::VI, typename Base::VU;

 public:
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

    const VU magnitude = hn::And(accumulator, hn::Set(u32, kMagnitude));
    const VI exponent = Base::ExponentOf(magnitude);
    largest = hn::Max(largest, exponent);

    // Terms in units of 2^(largest - fraction_bits).
    const D d;
    const D64 d64;
    const Half half;
    const VI base = hn::Sub(hn::Set(i32, fraction_bits_ + 127), largest);
    const VI accumulator_base = hn::Sub(base, hn::Set(i32, Output::kFractionBits));
    const VF value =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(i32, Base::Significand(magnitude))), PowerOfTwo(hn::Add(exponent, accumulator_base)));
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

    const VI last_bit = hn::Sub(largest, hn::Set(i32, fraction_bits_));
    const VU result = Base::FromSum(low, high, last_bit);
    if (factors_.a_special) return Special(begin, accumulator, magnitude, result);
    return Base::KeepSpecial(accumulator, magnitude, result);
  }

 private:
  HWY_INLINE VI Exponent(int64_t k) const {
    return Base::SumOf(factors_.a_exponents + k, factors_.b_exponents + k * kPanel + lane_);
  }
  HWY_INLINE VF Product(int64_t k) const { return Base::ProductOf(factors_.a + k, factors_.b + k * kPanel + lane_); }
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

// Terms are sums of kProductsOfGroup products, which are integers, times scales.
class GroupSums : OutputLanes<Fp32> {
  using I16 = hn::Repartition<int16_t, I>;
  using I64 = hn::Repartition<int64_t, I>;

 public:
  using OutputLanes::Lanes;

  GroupSums(const TensorCore& core, const LaneGroups& a, const LaneGroups& b, size_t lane)
      : groups_(core.model->products / kProductsOfGroup),
        fraction_bits_(core.model->fraction_bits),
        zero_exponent_(core.model->zero_exponent),
        unit_(core.a->smallest_exponent() + core.b->smallest_exponent()),
        a_(a),
        b_(b),
        lane_(lane) {}

  HWY_INLINE VU Block(int64_t begin, VU accumulator) const {
    const D d;
    const I i32;
    const U u32;
    const Half half;
    const VU magnitude = hn::And(accumulator, hn::Set(u32, kMagnitude));
    const VI exponent = ExponentOf(magnitude);
    VI largest = hn::Max(hn::Set(i32, zero_exponent_), exponent);
    for (int64_t group = begin; group < begin + groups_; ++group) {
      const auto is_zero = hn::RebindMask(i32, AllZero(group));
      largest = hn::Max(largest, hn::IfThenElse(is_zero, hn::Set(i32, kExponentOfZero), Exponent(group)));
    }

    // Terms in units of 2^(largest - fraction_bits): as FP64 numbers, for they may have 47 bits.
    const VI base = hn::Sub(hn::Set(i32, fraction_bits_), largest);
    VF value = hn::ConvertTo(d, hn::BitCast(i32, Significand(magnitude)));
    value = hn::Or(value, hn::BitCast(d, hn::And(accumulator, hn::Set(u32, kSign))));
    VI power = hn::Add(base, hn::Sub(exponent, hn::Set(i32, Fp32::kFractionBits)));
    VD low = Truncated(hn::LowerHalf(hn::Half<D>(), value), hn::LowerHalf(half, power));
    VD high = Truncated(hn::UpperHalf(hn::Half<D>(), value), hn::UpperHalf(half, power));
    for (int64_t group = begin; group < begin + groups_; ++group) {
      value = hn::Mul(hn::ConvertTo(d, Sum(group)), Scale(group));
      power = hn::Add(base, hn::Add(Exponent(group), hn::Set(i32, unit_)));
      low = hn::Add(low, Truncated(hn::LowerHalf(hn::Half<D>(), value), hn::LowerHalf(half, power)));
      high = hn::Add(high, Truncated(hn::UpperHalf(hn::Half<D>(), value), hn::UpperHalf(half, power)));
    }
    const VI last_bit = hn::Sub(largest, hn::Set(i32, fraction_bits_));
    VU result = FromSum(low, high, last_bit);
    result = KeepSpecial(accumulator, magnitude, result);
    // A scale of NaN.
    const VU sum = hn::And(UpperWords(low, high), hn::Set(u32, 0x7FFFFFFF));
    return hn::IfThenElse(hn::Gt(sum, hn::Set(u32, 0x7FF00000)), hn::Set(u32, kMagnitude), result);
  }

 private:
  HWY_INLINE VI Exponent(int64_t group) const { return SumOf(a_.exponents + group, b_.exponents + group * kPanel + lane_); }
  HWY_INLINE VF Scale(int64_t group) const { return ProductOf(a_.scales + group, b_.scales + group * kPanel + lane_); }
  // Exact, as pairs of products are.
  HWY_INLINE VI Sum(int64_t group) const {
    const I i32;
    const I16 i16;
    VI sum = hn::Zero(i32);
    for (int64_t pair = group * (kProductsOfGroup / 2); pair < (group + 1) * (kProductsOfGroup / 2); ++pair) {
      int32_t both;
      hwy::CopyBytes<sizeof(both)>(a_.elements + 2 * pair, &both);
      const auto b = hn::BitCast(i32, hn::LoadU(i16, b_.elements + 2 * (pair * kPanel + lane_)));
      sum = hn::Add(sum, SumOfPair(hn::Set(i32, both), b));
    }
    return sum;
  }
  // The products of both halves of each lane, added up: Highway promises no order of lanes.
  static HWY_INLINE VI SumOfPair(VI a, VI b) {
#if HWY_TARGET == HWY_AVX3
    return VI{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
    return VI{_mm256_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_SSE4
    return VI{_mm_madd_epi16(a.raw, b.raw)};
#else
    const auto first = [](VI pair) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(pair)); };
    return hn::Add(hn::Mul(first(a), first(b)), hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b)));
#endif
  }
  // Whether all products are zero.
  HWY_INLINE hn::MFromD<U> AllZero(int64_t group) const {
    const U u32;
    const VU both = hn::And(hn::Set(u32, a_.nonzero[group]), hn::LoadU(u32, b_.nonzero + group * kPanel + lane_));
    return hn::Eq(both, hn::Zero(u32));
  }

  // value * 2^power without what is behind the point. Powers below those of FP64 make zero of any value.
  static HWY_INLINE VD Truncated(hn::VFromD<hn::Half<D>> value, hn::VFromD<Half> power) {
    const D64 d64;
    const I64 i64;
    const Half half;
    const auto field = hn::PromoteTo(i64, hn::Max(hn::Add(power, hn::Set(half, 1023)), hn::Zero(half)));
    return hn::Trunc(hn::Mul(hn::PromoteTo(d64, value), hn::BitCast(d64, hn::ShiftLeft<52>(field))));
  }

  const int64_t groups_;  // of a block
  const int fraction_bits_, zero_exponent_, unit_;
  const LaneGroups &a_, &b_;
  const size_t lane_;
};

void SumGroups(const TensorCore& core, const LaneGroups& a, const LaneGroups& b, int64_t blocks,
               uint32_t* HWY_RESTRICT accumulators) {
  const hn::CappedTag<uint32_t, kPanel> u32;
  for (size_t lane = 0; lane < kPanel; lane += GroupSums::Lanes()) {
    const GroupSums sums(core, a, b, lane);
    auto accumulator = hn::LoadU(u32, accumulators + lane);
    for (int64_t block = 0; block < blocks; ++block)
      accumulator = sums.Block(block * (core.model->products / kProductsOfGroup), accumulator);
    hn::StoreU(accumulator, u32, accumulators + lane);
  }
}

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
HWY_EXPORT(SumGroups);

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

void sum_groups(const TensorCore& core, const LaneGroups& a, const LaneGroups& b, int64_t blocks, uint32_t* accumulators) {
  HWY_DYNAMIC_DISPATCH(SumGroups)(core, a, b, blocks, accumulators);
}

}  // namespace ulpscope

#endif
