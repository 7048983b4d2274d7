// The optimizer updates of one element, as templates over a lane type (lanes.h), like the formulas: PyTorch's rules and that of
// Lion's authors, in their single-tensor form. `stored` is around what one tensor operation of PyTorch leaves in memory, and around
// the scalars that it takes in the tensor's type: where 16-bit weights are updated by operations of their own type, there and
// nowhere else it rounds. In between is FP32 in the order of PyTorch's vectorised CPU kernels, with their fused operations.
#if defined(ULPSCOPE_KERNELS_UPDATES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_UPDATES_H
#undef ULPSCOPE_KERNELS_UPDATES_H
#else
#define ULPSCOPE_KERNELS_UPDATES_H
#endif

#include <algorithm>
#include <cmath>

#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/op_call.h"

ULPSCOPE_LANES_BEGIN

// `stored` where nothing is stored on the way: of FP32 and FP64 weights, and of 16-bit ones that are updated in FP32.
struct WideIntermediates {
  static constexpr bool kRounds = false;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V value) const {
    return value;
  }
};

// What an update makes of an element. The update d is what the rule adds to the weight, before the weight's own roundings, which
// decide what of it arrives. `gradient_share` is zero where d came from weight decay alone. Where the rule adds decay as a term of
// its own, that is `decay`, and without it the weight would have become `without_decay`; elsewhere these are 0 and `weight`.
template <class V, int states>
struct Updated {
  V weight, update, gradient_share;
  V state[states];
  V decay, without_decay;
};

// Adds decay that acts on the weight itself, of `share` of it, to an update without any. In PyTorch that is a multiplication before
// the step; where nothing is stored on the way, d is added at once, w <- round(w + d).
template <class V, int states, class Intermediates>
ULPSCOPE_LANE_FUNCTION void add_decay(Updated<V, states>& updated, V w, double share, Intermediates stored) {
  const V step = updated.update;
  updated.decay = constant<V>(-share) * w;
  updated.update = step + updated.decay;
  if constexpr (Intermediates::kRounds) {
    updated.weight = stored(stored(constant<V>(1 - share) * w) + step);
  } else {
    updated.weight = w + updated.update;
  }
}

// from + weight (to - from), from the end that is nearer.
template <class V>
ULPSCOPE_LANE_FUNCTION V lerp(V from, V to, double weight) {
  if (weight < 0.5) return fused(constant<V>(weight), to - from, from);
  return fused(constant<V>(weight) - constant<V>(1), to - from, to);
}

struct SgdUpdate {
  static constexpr const char* kName = "sgd_update";
  static constexpr int kStates = 1;
  double rate, momentum, damping, decay;
  bool nesterov, first_step;

  explicit SgdUpdate(const Attributes& attributes)
      : rate(attributes["lr"]),
        momentum(attributes["momentum"]),
        damping(attributes["dampening"]),
        decay(attributes["weight_decay"]),
        nesterov(attributes["nesterov"] != 0),
        first_step(attributes["first"] != 0) {}

  ULPSCOPE_LANE_FUNCTION bool adds_decay() const { return momentum == 0; }
  // The state is the momentum buffer, which calls do not bring where the momentum is 0. Its old value counts as the gradient's
  // share.
  template <class V, class Intermediates>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old, Intermediates stored) const {
    const V buffer = old[0];
    V direction = g;
    V share = g;
    if (decay != 0) direction = stored(fused(stored(constant<V>(decay)), w, g));
    V state = buffer;
    if (momentum != 0) {
      if (first_step) {
        state = direction;
      } else {
        state = stored(fused(stored(constant<V>(1 - damping)), direction, stored(constant<V>(momentum) * buffer)));
        share = select(g == constant<V>(0), buffer, g);
      }
      direction = nesterov ? stored(fused(stored(constant<V>(momentum)), state, direction)) : state;
    }
    const V factor = stored(constant<V>(-rate));
    const V d = factor * direction, weight = stored(fused(factor, direction, w));
    if (decay != 0 && adds_decay())
      return {weight, d, share, {state}, constant<V>(-rate) * (constant<V>(decay) * w), stored(fused(factor, g, w))};
    return {weight, d, share, {state}, constant<V>(0), weight};
  }
};

struct AdamUpdate {
  static constexpr const char* kName = "adam_update";
  static constexpr int kStates = 2;
  double beta1, beta2, epsilon, decay, rate, step_size, root_correction2;
  bool decoupled;

  explicit AdamUpdate(const Attributes& attributes)
      : beta1(attributes["beta1"]),
        beta2(attributes["beta2"]),
        epsilon(attributes["eps"]),
        decay(attributes["weight_decay"]),
        rate(attributes["lr"]),
        step_size(rate / (1 - std::pow(beta1, attributes["step"]))),
        root_correction2(std::sqrt(1 - std::pow(beta2, attributes["step"]))),
        decoupled(attributes["decoupled"] != 0) {}

  ULPSCOPE_LANE_FUNCTION bool adds_decay() const { return decoupled; }
  // With decay inside the gradient, the old first moment counts as the gradient's share.
  template <class V, class Intermediates>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old, Intermediates stored) const {
    const V m = old[0], v = old[1];
    const V direction = decay != 0 && !decoupled ? stored(fused(stored(constant<V>(decay)), w, g)) : g;
    const V first = stored(lerp(m, direction, 1 - beta1));
    const V second = stored(fused(constant<V>(1 - beta2) * direction, direction, stored(constant<V>(beta2) * v)));
    const V root = stored(stored(square_root(second)) / constant<V>(root_correction2));
    const V denominator = stored(root + stored(constant<V>(epsilon)));
    const V step = (constant<V>(-step_size) * first) / denominator;
    const V weight = stored(w + step), share = decoupled ? step : select(g == constant<V>(0), m, g);
    Updated<V, kStates> updated{weight, step, share, {first, second}, constant<V>(0), weight};
    if (decay != 0 && decoupled) add_decay(updated, w, rate * decay, stored);
    return updated;
  }
};

// d = -lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); the momentum m is averaged with beta2 after it.
struct LionUpdate {
  static constexpr const char* kName = "lion_update";
  static constexpr int kStates = 1;
  double beta1, beta2, decay, rate;

  explicit LionUpdate(const Attributes& attributes)
      : beta1(attributes["beta1"]), beta2(attributes["beta2"]), decay(attributes["weight_decay"]), rate(attributes["lr"]) {}

  ULPSCOPE_LANE_FUNCTION bool adds_decay() const { return true; }
  // A NaN stays one.
  template <class V, class Intermediates>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old, Intermediates stored) const {
    const V m = old[0], zero = constant<V>(0), factor = stored(constant<V>(rate));
    const V direction = stored(stored(constant<V>(beta1) * m) + stored(constant<V>(1 - beta1) * g));
    const V step = select(direction > zero, -factor, select(direction < zero, factor, direction));
    const V next = stored(fused(stored(constant<V>(1 - beta2)), g, stored(constant<V>(beta2) * m)));
    const V weight = stored(w + step);
    Updated<V, kStates> updated{weight, step, step, {next}, zero, weight};
    if (decay != 0) add_decay(updated, w, rate * decay, stored);
    return updated;
  }
};

// Of a decay; 0 and NaN stay what they are.
ULPSCOPE_LANE_FUNCTION double sign_of(double decay) { return decay > 0 ? 1.0 : decay < 0 ? -1.0 : decay; }
// Whether the rule adds decay as a term of its own, and there is some.
template <class Rule>
bool adds_some_decay(const Rule& rule) {
  return rule.adds_decay() && rule.decay != 0;
}

template <class... U>
struct UpdateList {
  static constexpr int kMostStates = std::max({U::kStates...});
};

// The kernels of all of them are built from this list. A call brings the weight, the gradient and the states, of which trailing
// ones may be missing; its outputs are the weight, the states and d.
using Updates = UpdateList<SgdUpdate, AdamUpdate, LionUpdate>;

ULPSCOPE_LANES_END

#endif
