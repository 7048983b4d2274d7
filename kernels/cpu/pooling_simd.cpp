// Compiled once per instruction set; vectors run along the channels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/cpu/pooling_simd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "ulpscope/kernels/cpu/pooling.h"
#include "ulpscope/kernels/pool_windows.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The part of a window that lies in the image: columns first_x <= kx < last_x, which begin at input column x.
struct WindowColumns {
  int64_t first, last, x;
  WindowColumns(const cpu::PoolRow& s, int64_t ox)
      : first(std::max<int64_t>(0, s.padding_x - ox * s.stride_x)),
        last(std::min(s.kernel_x, s.width + s.padding_x - ox * s.stride_x)),
        x(ox * s.stride_x - s.padding_x) {}
};

template <class D>
HWY_INLINE void Largest(D d, const cpu::PoolRow& s, const float* const* rows, const WindowColumns& window, int64_t channel,
                        float* out, uint8_t* indices) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> d8;
  auto best = hn::Zero(d);
  auto place = hn::Zero(di);
  bool first = true;
  for (int64_t ky = 0; ky < s.kernel_y; ++ky) {
    if (rows[ky] == nullptr) continue;
    for (int64_t kx = window.first; kx < window.last; ++kx) {
      const auto value = hn::LoadU(d, rows[ky] + (window.x + kx) * s.channels + channel);
      const auto here = hn::Set(di, static_cast<int32_t>(ky * s.kernel_x + kx));
      if (first) {
        best = value;
        place = here;
        first = false;
        continue;
      }
      // A value wins where it is larger, or the first NaN.
      const auto wins = hn::Or(hn::Gt(value, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(value)));
      best = hn::IfThenElse(wins, value, best);
      place = hn::IfThenElse(hn::RebindMask(di, wins), here, place);
    }
  }
  const auto mark = hn::IfThenElseZero(hn::RebindMask(di, hn::IsNaN(best)), hn::Set(di, kPoolNaN));
  hn::StoreU(best, d, out + channel);
  hn::StoreU(hn::DemoteTo(d8, hn::Add(place, mark)), d8, indices + channel);
}

// kTiles: nothing has been added to the elements before.
template <bool kTiles, class D>
HWY_INLINE void AddGradient(D d, const cpu::PoolRow& s, const float* gradients, const uint8_t* indices, const WindowColumns& window,
                            int64_t channel, float* const* rows) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> d8;
  const auto index = hn::PromoteTo(di, hn::LoadU(d8, indices + channel));
  const auto is_nan = hn::RebindMask(d, hn::Gt(index, hn::Set(di, kPoolNaN - 1)));
  const auto gradient =
      hn::IfThenElse(is_nan, hn::Set(d, std::numeric_limits<float>::quiet_NaN()), hn::LoadU(d, gradients + channel));
  const auto place = hn::And(index, hn::Set(di, kPoolPlaceMask));
  for (int64_t ky = 0; ky < s.kernel_y; ++ky) {
    if (rows[ky] == nullptr) continue;
    for (int64_t kx = window.first; kx < window.last; ++kx) {
      float* to = rows[ky] + (window.x + kx) * s.channels + channel;
      const auto here = hn::RebindMask(d, hn::Eq(place, hn::Set(di, static_cast<int32_t>(ky * s.kernel_x + kx))));
      const auto before = kTiles ? hn::Zero(d) : hn::LoadU(d, to);
      hn::StoreU(hn::Add(before, hn::IfThenElseZero(here, gradient)), d, to);
    }
  }
}

void Forward(const cpu::PoolRow& s, const float* const* rows, float* out, uint8_t* indices) {
  const hn::ScalableTag<float> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t ox = 0; ox < s.out_width; ++ox, out += s.channels, indices += s.channels) {
    const WindowColumns window(s, ox);
    int64_t c = 0;
    for (; c + width <= s.channels; c += width) Largest(d, s, rows, window, c, out, indices);
    for (; c < s.channels; ++c) Largest(hn::CappedTag<float, 1>(), s, rows, window, c, out, indices);
  }
}

template <bool kTiles>
void Backward(const cpu::PoolRow& s, const float* gradients, const uint8_t* indices, float* const* rows) {
  const hn::ScalableTag<float> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t ox = 0; ox < s.out_width; ++ox, gradients += s.channels, indices += s.channels) {
    const WindowColumns window(s, ox);
    int64_t c = 0;
    for (; c + width <= s.channels; c += width) AddGradient<kTiles>(d, s, gradients, indices, window, c, rows);
    for (; c < s.channels; ++c) AddGradient<kTiles>(hn::CappedTag<float, 1>(), s, gradients, indices, window, c, rows);
  }
}

const cpu::PoolingKernels* Kernels() {
  static constexpr cpu::PoolingKernels kKernels{Forward, Backward<false>, Backward<true>};
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
const PoolingKernels& pooling_kernels() { return *HWY_DYNAMIC_DISPATCH(Kernels)(); }
}  // namespace cpu
}  // namespace ulpscope
#endif
