#include "ulpscope/kernels/update_sums_kernel.h"

#include "ulpscope/kernels/sum_order.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/update_sums_kernel.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/kernels/update_sums_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

// So many elements are taken together: whole lanes of the sums, and whole vectors of either type.
constexpr int64_t kTogether = 2 * kSumLanes;

template <typename Number>
HWY_INLINE void Tally(const Number* before, const Number* after, const Number* update, UpdateTallies& tallies) {
  const hn::ScalableTag<Number> d;
  constexpr int64_t kWidth = hn::MaxLanes(d);
  static_assert(kTogether % kWidth == 0);
  for (int64_t i = 0; i < kTogether; i += kWidth) {
    // A NaN is an update, too.
    const auto nonzero = hn::Not(hn::Eq(hn::LoadU(d, update + i), hn::Zero(d)));
    tallies.nonzero += hn::CountTrue(d, nonzero);
    tallies.lost += hn::CountTrue(d, hn::And(nonzero, hn::Eq(hn::LoadU(d, before + i), hn::LoadU(d, after + i))));
  }
}

template <typename Number>
void AddUpdate(const UpdatedBlock<Number>& block, UpdateSums& sums, UpdateTallies& tallies) {
  alignas(64) static constexpr Number kZeros[kSumLanes] = {};
  int64_t i = 0;
  UpdateTallies counted;
  {
    UpdateLanes lanes(sums);
    for (; i + kTogether <= block.n; i += kTogether) {
      for (int64_t first = i; first < i + kTogether; first += kSumLanes)
        for (int v = 0; v < kSumVectors; ++v) {
          const int64_t at = first + v * kSumWidth;
          lanes.Add(v, block.before + at, block.update + at, block.gradient == nullptr ? kZeros : block.gradient + at);
        }
      Tally(block.before + i, block.after + i, block.update + i, counted);
    }
    lanes.Store(sums);
  }
  for (; i < block.n; ++i) {
    const double w = block.before[i], d = block.update[i], g = block.gradient == nullptr ? 0 : block.gradient[i];
    const int64_t lane = i % kSumLanes;
    sums.lanes[UpdateSums::weight_squares][lane] += w * w;
    sums.lanes[UpdateSums::update_squares][lane] += d * d;
    sums.lanes[UpdateSums::gradient_dot_update][lane] += g * d;
    const bool is_nonzero = !(d == 0);
    counted.nonzero += is_nonzero;
    counted.lost += is_nonzero && block.before[i] == block.after[i];
  }
  tallies.nonzero += counted.nonzero;
  tallies.lost += counted.lost;
}

void AddUpdateF32(const UpdatedBlock<float>& block, UpdateSums& sums, UpdateTallies& tallies) { AddUpdate(block, sums, tallies); }
void AddUpdateF64(const UpdatedBlock<double>& block, UpdateSums& sums, UpdateTallies& tallies) { AddUpdate(block, sums, tallies); }

// The lanes of a block's sum of squares.
template <typename Number>
double SumOfSquares(const Number* values, int64_t n) {
  alignas(64) double lanes[kSumLanes];
  hn::Vec<SumTag> sums[kSumVectors];
  for (auto& sum : sums) sum = hn::Zero(SumTag());
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (int v = 0; v < kSumVectors; ++v) {
      const auto value = LoadWide(values + i + v * kSumWidth);
      sums[v] = hn::Add(sums[v], hn::Mul(value, value));
    }
  for (int v = 0; v < kSumVectors; ++v) hn::Store(sums[v], SumTag(), lanes + v * kSumWidth);
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  add_lanes(lanes);
  return lanes[0];
}
double SumOfSquaresF32(const float* values, int64_t n) { return SumOfSquares(values, n); }
double SumOfSquaresF64(const double* values, int64_t n) { return SumOfSquares(values, n); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(AddUpdateF32);
HWY_EXPORT(AddUpdateF64);
HWY_EXPORT(SumOfSquaresF32);
HWY_EXPORT(SumOfSquaresF64);
}  // namespace

void add_update(const UpdatedBlock<float>& block, UpdateSums& sums, UpdateTallies& tallies) {
  HWY_DYNAMIC_DISPATCH(AddUpdateF32)(block, sums, tallies);
}
void add_update(const UpdatedBlock<double>& block, UpdateSums& sums, UpdateTallies& tallies) {
  HWY_DYNAMIC_DISPATCH(AddUpdateF64)(block, sums, tallies);
}
double sum_of_squares(const float* values, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquaresF32)(values, n); }
double sum_of_squares(const double* values, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquaresF64)(values, n); }

}  // namespace ulpscope
#endif
