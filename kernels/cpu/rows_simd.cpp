// The row ops of rows.h on Highway vectors, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/rows_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#define ULPSCOPE_SIMD_LANES
#include <algorithm>
#include <vector>

#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/evaluate-inl.h"
#include "ulpscope/kernels/cpu/row_kernels.h"
#include "ulpscope/kernels/reduction_order.h"
#include "ulpscope/kernels/rows.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

struct SimdLoops {
  using Value = float;

  template <class F, class... P>
  HWY_INLINE void map(const F& f, int64_t n, float* out, const P*... in) const {
    Map(f, n, out, in...);
  }

  template <class F, class... P>
  HWY_INLINE float sum(const F& f, int64_t n, const P*... in) const {
    const int64_t blocks = (n + kReductionBlock - 1) / kReductionBlock;
    if (blocks <= 1) return BlockSum(f, n, in...);
    constexpr int64_t kFew = 64;
    float few[kFew] = {};
    std::vector<float> many(blocks > kFew ? static_cast<size_t>(blocks) : 0);
    float* sums = blocks > kFew ? many.data() : few;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kReductionBlock;
      sums[block] = BlockSum(f, std::min(kReductionBlock, n - first), (in + first)...);
    }
    merge_by_tree(sums, blocks, [](float a, float b) { return a + b; });
    return sums[0];
  }

  HWY_INLINE float largest(int64_t n, const float* x) const {
    const FloatTag d;
    HWY_ALIGN float lanes[kWidth];
    float value = x[0];
    int64_t i = 0;
    if (n >= kWidth) {
      auto most = hn::LoadU(d, x);
      for (; i + kWidth <= n; i += kWidth) {
        const auto next = hn::LoadU(d, x + i);
        most = hn::IfThenElse(hn::Or(hn::Gt(next, most), hn::IsNaN(next)), next, most);
      }
      hn::Store(most, d, lanes);
      for (const float lane : lanes) value = Larger(value, lane);
    }
    for (; i < n; ++i) value = Larger(value, x[i]);
    return value;
  }

  template <class F, class... T>
  HWY_INLINE float apply(const F& f, T... values) const {
    return hn::GetLane(EvaluateRest(f, 1, &values...));
  }

 private:
  static HWY_INLINE float Larger(float a, float b) { return b > a || b != b ? b : a; }

  template <class F, class... P>
  static HWY_INLINE float BlockSum(const F& f, int64_t n, const P*... in) {
    const FloatTag d;
    constexpr int64_t kVectors = kSumLanes / kWidth;
    hn::Vec<FloatTag> sums[kVectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + kSumLanes <= n; i += kSumLanes) {
      for (int64_t k = 0; k < kVectors; ++k) sums[k] = hn::Add(sums[k], Evaluate(f, (in + i + k * kWidth)...));
    }
    HWY_ALIGN float lanes[kSumLanes];
    for (int64_t k = 0; k < kVectors; ++k) hn::Store(sums[k], d, lanes + k * kWidth);
    HWY_ALIGN float rest[kWidth];
    for (; i < n; i += kWidth) {
      const int64_t count = std::min(kWidth, n - i);
      hn::Store(EvaluateRest(f, count, (in + i)...), d, rest);
      for (int64_t k = 0; k < count; ++k) lanes[(i + k) % kSumLanes] += rest[k];
    }
    add_lanes(lanes);
    return lanes[0];
  }
};

template <class R>
void Run(const Attributes& attributes, const RowCall<float>& row) {
  R op(attributes);
  op(SimdLoops(), row);
}

template <class... R>
const cpu::RowKernel* KernelsOf(RowOpList<R...>) {
  static constexpr cpu::RowKernel kKernels[] = {Run<R>...};
  return kKernels;
}

const cpu::RowKernel* RowKernels() { return KernelsOf(RowOps()); }

void Terms(const float* g, const float* x, float mean, float inverse, int64_t n, float* terms) {
  SimdLoops().map(WeightTerms(mean, inverse), n, terms, g, x);
}

float LogOfSoftmaxSum(const float* x, int64_t n) { return log_of_softmax_sum(SimdLoops(), n, x); }

void Exponentials(const float* x, float origin, int64_t n, float* out) { SimdLoops().map(ExponentialFrom(origin), n, out, x); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(RowKernels);
HWY_EXPORT(Terms);
HWY_EXPORT(LogOfSoftmaxSum);
HWY_EXPORT(Exponentials);
}  // namespace
namespace cpu {
RowKernel row_kernel(int index) { return HWY_DYNAMIC_DISPATCH(RowKernels)()[index]; }
void weight_terms(const float* g, const float* x, float mean, float inverse, int64_t n, float* terms) {
  HWY_DYNAMIC_DISPATCH(Terms)(g, x, mean, inverse, n, terms);
}
float log_of_softmax_sum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogOfSoftmaxSum)(x, n); }
void exponentials(const float* x, float origin, int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(Exponentials)(x, origin, n, out); }
}  // namespace cpu
}  // namespace ulpscope
#endif
