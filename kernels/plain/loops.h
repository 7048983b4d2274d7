// Formulas one element after another: their values, and the loops of rows.h.
#pragma once

#include <type_traits>

#include "ulpscope/kernels/plain/access.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::plain {

// The value of a formula (formulas.h) or of what a row op maps (rows.h) at elements widened to C.
template <typename C, class F, class... T>
C evaluate(const F& f, T... values) {
  if constexpr (F::kWide && std::is_same_v<C, float>) {
    return static_cast<float>(f.template operator()<lanes::Wide>(lanes::Wide(static_cast<double>(values))...).raw);
  } else {
    return f.template operator()<C>(values...);
  }
}

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
