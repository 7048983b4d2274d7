// Compiled once per instruction set; lanes are columns, so that the order of the sums is the same on all of them.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/accumulation_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/emulation/to_odd-inl.h"
#include "ulpscope/kernels/cpu/accumulation.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<double, cpu::kAccumulatedColumns>;
using Narrow = hn::Rebind<float, Tag>;
using Vector = hn::Vec<Tag>;

// A format with f fraction bits, as its rounding needs it.
struct NarrowSums {
  double smallest_normal, largest, magic;  // 1.5 * 2^(52 - f)
};

// FP64 numbers that stand for exact ones become the format's numbers, to nearest even. Adding 1.5 * 2^(52 - f) times the power of
// two below leaves room for f more bits, or among subnormals for those down to the smallest one, so that the addition rounds.
HWY_INLINE Vector Rounded(const NarrowSums& sums, Vector v) {
  const Tag d;
  const hn::RebindToUnsigned<Tag> du;
  const auto power = hn::BitCast(d, hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FF0000000000000)));
  const auto magic = hn::Mul(hn::Max(power, hn::Set(d, sums.smallest_normal)), hn::Set(d, sums.magic));
  const auto rounded = hn::CopySign(hn::Sub(hn::Add(v, magic), magic), v);
  const auto infinity = hn::CopySign(hn::Inf(d), v);
  const auto kept = hn::IfThenElse(hn::Gt(hn::Abs(rounded), hn::Set(d, sums.largest)), infinity, rounded);
  return hn::IfThenElse(hn::IsFinite(v), kept, v);
}

// Products of FP32 numbers are exact in FP64, and so is the rounding after this one.
HWY_INLINE Vector AddRoundedToOdd(Vector a, Vector b) {
  const auto sum = hn::Add(a, b);
  return ToOdd(Tag(), sum, LostBySum(a, b, sum));
}

template <int kVectors>
HWY_INLINE void Accumulate(const NarrowSums& format, const float* a, const float* b, int64_t terms, int64_t columns, float* sums) {
  const Tag d;
  const Narrow narrow;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  Vector partial[kVectors];
  for (int64_t l = 0; l < terms; ++l) {
    const auto factor = hn::Set(d, static_cast<double>(a[l]));
    for (int v = 0; v < kVectors; ++v) {
      const auto product = hn::Mul(factor, hn::PromoteTo(d, hn::LoadU(narrow, b + l * columns + v * width)));
      partial[v] = Rounded(format, l == 0 ? product : AddRoundedToOdd(product, partial[v]));
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::DemoteTo(narrow, partial[v]), narrow, sums + v * width);
}

void AccumulateIn(const FloatFormat& format, const float* a, const float* b, int64_t terms, int64_t columns, float* sums) {
  const NarrowSums narrow{format.smallest_normal(), format.largest_finite(), std::ldexp(1.5, 52 - format.fraction_bits)};
  const auto width = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t j = 0;
  for (; j + 4 * width <= columns; j += 4 * width) Accumulate<4>(narrow, a, b + j, terms, columns, sums + j);
  for (; j < columns; j += width) Accumulate<1>(narrow, a, b + j, terms, columns, sums + j);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(AccumulateIn);
}
namespace cpu {
void accumulate_in(const FloatFormat& format, const float* a, const float* b, int64_t terms, int64_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(AccumulateIn)(format, a, b, terms, columns, sums);
}
}  // namespace cpu
}  // namespace ulpscope
#endif
