// Rounding to odd on vectors of FP64. For SIMD sources that include it after highway.h, once for each target.
#if defined(ULPSCOPE_EMULATION_TO_ODD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_EMULATION_TO_ODD_INL_H_
#undef ULPSCOPE_EMULATION_TO_ODD_INL_H_
#else
#define ULPSCOPE_EMULATION_TO_ODD_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

// The exact number sum + lost rounded to odd, so that a rounding to 51 bits or fewer after it is one of that number. |lost| is less
// than the distance from `sum` to its neighbour on that side.
template <class D, class V>
HWY_INLINE V ToOdd(D d, V sum, V lost) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const auto zero = hn::Zero(d);
  const auto inexact = hn::And(hn::IsFinite(sum), hn::Or(hn::Lt(lost, zero), hn::Gt(lost, zero)));
  const auto sign = hn::Xor(hn::BitCast(di, lost), hn::BitCast(di, sum));
  const auto one = hn::Set(di, 1);
  const auto towards_zero = hn::Sub(hn::BitCast(di, sum), hn::And(hn::BroadcastSignBit(sign), one));
  return hn::IfThenElse(inexact, hn::BitCast(d, hn::Or(towards_zero, one)), sum);
}

// What the addition that gave `sum` lost, exactly, whichever of the terms is larger (D. Knuth's two-sum).
template <class V>
HWY_INLINE V LostBySum(V a, V b, V sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto b_part = hn::Sub(sum, a);
  return hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part));
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif  // per target
