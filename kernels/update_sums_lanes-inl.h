// The lanes of the sums of an update (update_sums.h) while they are in registers: of |w|, |d| and g d.
#if defined(ULPSCOPE_KERNELS_UPDATE_SUMS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_UPDATE_SUMS_LANES_INL_H
#undef ULPSCOPE_KERNELS_UPDATE_SUMS_LANES_INL_H
#else
#define ULPSCOPE_KERNELS_UPDATE_SUMS_LANES_INL_H
#endif

#include "hwy/highway.h"
#include "ulpscope/kernels/update_sums.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using SumTag = hn::ScalableTag<double>;
inline constexpr int kSumWidth = hn::MaxLanes(SumTag()), kSumVectors = kSumLanes / kSumWidth;

// kSumWidth elements as FP64.
HWY_INLINE hn::Vec<SumTag> LoadWide(const float* values) {
  return hn::PromoteTo(SumTag(), hn::LoadU(hn::Rebind<float, SumTag>(), values));
}
HWY_INLINE hn::Vec<SumTag> LoadWide(const double* values) { return hn::LoadU(SumTag(), values); }

class UpdateLanes {
 public:
  HWY_INLINE explicit UpdateLanes(const UpdateSums& sums) {
    for (int sum = 0; sum < kSums; ++sum)
      for (int i = 0; i < kSumVectors; ++i) lanes_[sum][i] = hn::Load(SumTag(), sums.lanes[sum] + i * kSumWidth);
  }
  HWY_INLINE void Store(UpdateSums& sums) const {
    for (int sum = 0; sum < kSums; ++sum)
      for (int i = 0; i < kSumVectors; ++i) hn::Store(lanes_[sum][i], SumTag(), sums.lanes[sum] + i * kSumWidth);
  }
  // Adds the elements of vector `i` of kSumLanes. Products of FP32 values are exact in FP64, and of FP64 ones they are rounded.
  template <typename Number>
  HWY_INLINE void Add(int i, const Number* weight, const Number* update, const Number* gradient) {
    const auto w = LoadWide(weight), d = LoadWide(update), g = LoadWide(gradient);
    Sum(i, UpdateSums::weight_squares, hn::Mul(w, w));
    Sum(i, UpdateSums::update_squares, hn::Mul(d, d));
    Sum(i, UpdateSums::gradient_dot_update, hn::Mul(g, d));
  }

 private:
  static constexpr int kSums = UpdateSums::decay_asked;

  HWY_INLINE void Sum(int i, UpdateSums::Sum which, hn::Vec<SumTag> terms) { lanes_[which][i] = hn::Add(lanes_[which][i], terms); }

  hn::Vec<SumTag> lanes_[kSums][kSumVectors];
};

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#endif
