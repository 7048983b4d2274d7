// The optimizer updates of one element, as templates over a lane type (lanes.h), like the formulas: PyTorch's rules and Lion's, in
// their single-tensor form, with the update d formed first, so that the weight changes in one rounding, w <- round(w + d).
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

// What an update makes of an element. `gradient_share` is zero where d came from weight decay alone. Where the rule adds decay as a
// term of its own, that is `decay`, and without it the weight would have become `without_decay`; elsewhere these are 0 and
// `weight`.
template <class V, int states>
struct Updated {
  V weight, update, gradient_share;
  V state[states];
  V decay, without_decay;
};

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

  bool adds_decay() const { return momentum == 0; }
  // The state is the momentum buffer, which calls do not bring where the momentum is 0. Its old value counts as the gradient's
  // share.
  template <class V>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old) const {
    const V buffer = old[0];
    V direction = g;
    V share = g;
    if (decay != 0) direction = g + constant<V>(decay) * w;
    V state = buffer;
    if (momentum != 0) {
      if (first_step) {
        state = direction;
      } else {
        state = constant<V>(momentum) * buffer + constant<V>(1 - damping) * direction;
        share = select(g == constant<V>(0), buffer, g);
      }
      direction = nesterov ? direction + constant<V>(momentum) * state : state;
    }
    const V d = constant<V>(-rate) * direction;
    if (decay != 0 && adds_decay())
      return {w + d, d, share, {state}, constant<V>(-rate) * (constant<V>(decay) * w), w + constant<V>(-rate) * g};
    return {w + d, d, share, {state}, constant<V>(0), w + d};
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

  bool adds_decay() const { return decoupled; }
  // With decay inside the gradient, the old first moment counts as the gradient's share.
  template <class V>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old) const {
    const V m = old[0], v = old[1];
    const V direction = decay != 0 && !decoupled ? g + constant<V>(decay) * w : g;
    const V first = m + (direction - m) * constant<V>(1 - beta1);
    const V second = v * constant<V>(beta2) + (constant<V>(1 - beta2) * direction) * direction;
    const V denominator = square_root(second) / constant<V>(root_correction2) + constant<V>(epsilon);
    const V step = constant<V>(-step_size) * (first / denominator);  // in this order, as in PyTorch on CUDA
    if (decay != 0 && decoupled) {
      const V term = constant<V>(-(rate * decay)) * w;
      const V d = step + term;
      return {w + d, d, step, {first, second}, term, w + step};
    }
    return {w + step, step, select(g == constant<V>(0), m, g), {first, second}, constant<V>(0), w + step};
  }
};

// d = -lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); the momentum m is averaged with beta2 after it.
struct LionUpdate {
  static constexpr const char* kName = "lion_update";
  static constexpr int kStates = 1;
  double beta1, beta2, decay, rate;

  explicit LionUpdate(const Attributes& attributes)
      : beta1(attributes["beta1"]), beta2(attributes["beta2"]), decay(attributes["weight_decay"]), rate(attributes["lr"]) {}

  bool adds_decay() const { return true; }
  // A NaN stays one.
  template <class V>
  ULPSCOPE_LANE_FUNCTION Updated<V, kStates> operator()(V w, V g, const V* old) const {
    const V m = old[0], zero = constant<V>(0);
    const V direction = constant<V>(beta1) * m + constant<V>(1 - beta1) * g;
    const V step = select(direction > zero, constant<V>(-rate), select(direction < zero, constant<V>(rate), direction));
    const V next = constant<V>(beta2) * m + constant<V>(1 - beta2) * g;
    if (decay == 0) return {w + step, step, step, {next}, zero, w + step};
    const V term = constant<V>(-(rate * decay)) * w;
    const V d = step + term;
    return {w + d, d, step, {next}, term, w + step};
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
