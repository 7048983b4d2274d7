// Compiled once per instruction set; the order of the sums is the same on all of them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/narrow_product_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/narrow_product.h"
#include "ulpscope/kernels/sum_order.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, kSumLanes>;
constexpr int kVectors = kSumLanes / static_cast<int>(hn::MaxLanes(Tag()));

// Columns j, ..., j + columns - 1 of row i.
template <int columns>
HWY_INLINE void Dots(const cpu::NarrowProduct& p, int64_t i, int64_t j) {
  const Tag d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const float* a = p.a + i * p.a_row;
  hn::Vec<Tag> sums[columns * kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t l = 0;
  for (; l + kSumLanes <= p.k; l += kSumLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const auto left = hn::LoadU(d, a + l + v * width);
      for (int column = 0; column < columns; ++column) {
        const auto right = hn::LoadU(d, p.b + (j + column) * p.k + l + v * width);
        sums[column * kVectors + v] = hn::Add(sums[column * kVectors + v], hn::Mul(left, right));
      }
    }
  }
  for (int column = 0; column < columns; ++column) {
    HWY_ALIGN float lanes[kSumLanes];
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[column * kVectors + v], d, lanes + v * width);
    for (int64_t rest = l; rest < p.k; ++rest) lanes[rest - l] += a[rest] * p.b[(j + column) * p.k + rest];
    add_lanes(lanes);
    p.c[i * p.n + j + column] = p.bias != nullptr ? lanes[0] + p.bias[j + column] : lanes[0];
  }
}

void Product(const cpu::NarrowProduct& p) {
  for (int64_t i = 0; i < p.m; ++i) {
    int64_t j = 0;
    for (; j + 4 <= p.n; j += 4) Dots<4>(p, i, j);
    for (; j < p.n; ++j) Dots<1>(p, i, j);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {
HWY_EXPORT(Product);
}
namespace cpu {
void narrow_product(const NarrowProduct& product) { HWY_DYNAMIC_DISPATCH(Product)(product); }
}  // namespace cpu
}  // namespace ulpscope
#endif
