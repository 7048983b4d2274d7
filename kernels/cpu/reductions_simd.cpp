// The inner loops of reductions and of batch normalization, compiled once per instruction set. Element by element they do what the
// plain twins do, so that the width of the vectors changes no bit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/reductions_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/reductions.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using OneLane = hn::CappedTag<float, 1>;

// step(tag, column, offset in x, offset in the sums) for every vector, and every single element that is left, of every row.
template <class Step>
HWY_INLINE void ForEachVector(const cpu::RowSums& rows, const Step& step) {
  const FloatTag d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t x = r * rows.stride, sums = (r & (rows.lanes - 1)) * rows.columns;
    int64_t c = 0;
    for (; c + width <= rows.columns; c += width) step(d, c, x + c, sums + c);
    for (; c < rows.columns; ++c) step(OneLane(), c, x + c, sums + c);
  }
}

template <class D, class V>
HWY_INLINE void AddTo(D d, V value, float* sum) {
  hn::StoreU(hn::Add(hn::LoadU(d, sum), value), d, sum);
}

struct AddStep {
  const float* x;
  float* sums;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t, int64_t at, int64_t sum) const {
    AddTo(d, hn::LoadU(d, x + at), sums + sum);
  }
};
void Add(const cpu::RowSums& rows, float* sums) { ForEachVector(rows, AddStep{rows.x, sums}); }

struct AddDeviationsStep {
  const float *x, *center;
  float *deviations, *squares;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t c, int64_t at, int64_t sum) const {
    const auto deviation = hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, center + c));
    AddTo(d, deviation, deviations + sum);
    AddTo(d, hn::Mul(deviation, deviation), squares + sum);
  }
};
void AddDeviations(const cpu::RowSums& rows, const float* center, float* deviations, float* squares) {
  ForEachVector(rows, AddDeviationsStep{rows.x, center, deviations, squares});
}

struct AddProductsStep {
  const float *x, *g, *center;
  float *sums, *products;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t c, int64_t at, int64_t sum) const {
    const auto gradient = hn::LoadU(d, g + at);
    AddTo(d, gradient, sums + sum);
    AddTo(d, hn::Mul(gradient, hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, center + c))), products + sum);
  }
};
void AddProducts(const cpu::RowSums& rows, const float* g, const float* center, float* sums, float* products) {
  ForEachVector(rows, AddProductsStep{rows.x, g, center, sums, products});
}

// The square of an FP32 value is exact in FP64, so fusing changes nothing.
void AddSquares(const float* x, int64_t n, double* sums) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr int64_t kWidth = hn::MaxLanes(d), kVectors = kSumLanes / kWidth;
  hn::Vec<decltype(d)> lanes[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) lanes[k] = hn::LoadU(d, sums + k * kWidth);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto value = hn::PromoteTo(d, hn::LoadU(narrow, x + i + k * kWidth));
      lanes[k] = hn::MulAdd(value, value, lanes[k]);
    }
  }
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(lanes[k], d, sums + k * kWidth);
  for (; i < n; ++i) {
    const double value = x[i];
    sums[i % kSumLanes] += value * value;
  }
}

struct NormalizeStep {
  const float *x, *center, *factor, *bias;
  float* y;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t c, int64_t at, int64_t) const {
    const auto centered = hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, center + c));
    hn::StoreU(hn::Add(hn::Mul(centered, hn::LoadU(d, factor + c)), hn::LoadU(d, bias + c)), d, y + at);
  }
};
void Normalize(const cpu::RowSums& rows, const float* center, const float* factor, const float* bias, float* y) {
  ForEachVector(rows, NormalizeStep{rows.x, center, factor, bias, y});
}

struct NormalizeBackwardStep {
  const float *x, *g, *center, *offset, *slope, *factor;
  float* dx;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t c, int64_t at, int64_t) const {
    const auto centered = hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, center + c));
    const auto gradient = hn::Sub(hn::LoadU(d, g + at), hn::LoadU(d, offset + c));
    const auto corrected = hn::Sub(gradient, hn::Mul(centered, hn::LoadU(d, slope + c)));
    hn::StoreU(hn::Mul(hn::LoadU(d, factor + c), corrected), d, dx + at);
  }
};
struct ScaleStep {
  const float *g, *factor;
  float* dx;
  template <class D>
  HWY_INLINE void operator()(D d, int64_t c, int64_t at, int64_t) const {
    hn::StoreU(hn::Mul(hn::LoadU(d, factor + c), hn::LoadU(d, g + at)), d, dx + at);
  }
};
void NormalizeBackward(const cpu::RowSums& rows, const float* g, const float* center, const float* offset, const float* slope,
                       const float* factor, float* dx) {
  if (slope == nullptr) return ForEachVector(rows, ScaleStep{g, factor, dx});
  ForEachVector(rows, NormalizeBackwardStep{rows.x, g, center, offset, slope, factor, dx});
}

const cpu::ReductionKernels* Kernels() {
  static constexpr cpu::ReductionKernels kKernels{Add, AddDeviations, AddProducts, AddSquares, Normalize, NormalizeBackward};
  return &kKernels;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(Kernels);
}
namespace cpu {
const ReductionKernels& reduction_kernels() { return *HWY_DYNAMIC_DISPATCH(Kernels)(); }
}  // namespace cpu
}  // namespace ulpscope
#endif
