// The loops of rows.h, one element after another.
#pragma once

#include "ulpscope/kernels/plain/access.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::plain {

using lanes::evaluate;

template <typename C>
struct PlainLoops {
  using Value = C;

  template <class F, class... P>
  void map(const F& f, int64_t n, C* out, const P*... in) const {
    for (int64_t i = 0; i < n; ++i) out[i] = apply(f, in[i]...);
  }
  template <class F, class... P>
  C sum(const F& f, int64_t n, const P*... in) const {
    return ordered_sum<C>(n, [&](int64_t i) { return apply(f, in[i]...); });
  }
  C largest(int64_t n, const C* x) const {
    if constexpr (requires { largest_of(n, x); }) return largest_of(n, x);
    C value = x[0];
    for (int64_t i = 1; i < n; ++i) {
      if (x[i] > value || x[i] != x[i]) value = x[i];
    }
    return value;
  }
  template <class F, class... T>
  C apply(const F& f, T... values) const {
    return evaluate<C>(f, values...);
  }
};

}  // namespace ulpscope::plain
