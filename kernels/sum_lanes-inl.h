// The sum of the lanes of a vector of 64-bit integers, modulo 2^64.
#if defined(ULPSCOPE_KERNELS_SUM_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_SUM_LANES_INL_H
#undef ULPSCOPE_KERNELS_SUM_LANES_INL_H
#else
#define ULPSCOPE_KERNELS_SUM_LANES_INL_H
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Not SumOfLanes: GCC's intrinsic for AVX-512 adds signed numbers, whose overflow is undefined.
HWY_INLINE uint64_t SumLanes(hn::Vec<hn::ScalableTag<uint64_t>> lanes) {
  const hn::ScalableTag<uint64_t> d;
  HWY_ALIGN uint64_t stored[hn::MaxLanes(hn::ScalableTag<uint64_t>())];
  hn::Store(lanes, d, stored);
  uint64_t sum = 0;
  for (size_t i = 0; i < hn::Lanes(d); ++i) sum += stored[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif
