// What acts on gradients and parameters in plain loops: unscaling, norms and the updates of optimizers.
#include <array>
#include <cmath>
#include <type_traits>

#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/elementwise.h"
#include "ulpscope/kernels/updates.h"

namespace ulpscope::plain {
namespace {

using lanes::magnitude;

// Outputs g times the attribute inverse_scale, and a flag that is raised where an element of g is not finite; both in place.
struct Unscale {
  double factor;
  int64_t size;

  explicit Unscale(const OpCall& call) : factor(call.attribute("inverse_scale")), size(call.inputs[0].size()) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    if (slot == 0) return in(0, e) * static_cast<C>(factor);
    const C flag = in(1, 0);
    return in.statistic([&] {
      bool nonfinite = false;
      for (int64_t i = 0; i < size; ++i) nonfinite |= !(magnitude(in(0, i)) < static_cast<C>(lanes::kInfinity));
      return nonfinite ? C{1} : flag;
    });
  }
};

template <class V>
V round_through(const FloatFormat& format, V value) {
  const NarrowFormat& narrow = narrow_format(format);
  return narrow.widen(narrow.round(value));
}

// `stored` (updates.h) of a 16-bit type.
template <DType type>
struct RoundedIntermediates {
  static constexpr bool kRounds = true;
  template <class V>
  V operator()(V value) const {
    return round_through(*info(type).format, value);
  }
};

// Inputs w, g and the states; outputs w, the states in place, and the update d. Computed in the type C. Where that rounds on the
// way, what it lost of the weights and states is counted from what they become without.
template <typename C, typename Intermediates, typename Update>
void update_as(const OpCall& call) {
  const Update rule(*call.attributes);
  const auto states = static_cast<int>(call.inputs.size()) - 2;
  const int update_slot = states + 1;
  constexpr bool stepwise = Intermediates::kRounds;
  std::vector<Output<C>> outputs, wide;
  for (int slot = 0; slot <= update_slot; ++slot) {
    outputs.emplace_back(call, slot);
    if (stepwise) wide.emplace_back(call, slot);
  }
  std::vector<C> old_weights, shares, without;
  std::array<std::vector<double>, 5> terms;  // of the sums of UpdateCounts, in memory order
  for (auto& each : terms) each.resize(static_cast<size_t>(call.outputs[0].size()));
  std::vector<double> decays;
  const int64_t size = call.outputs[0].size();
  for (int64_t i = 0; i < size; ++i) {
    const auto value = [&](int input) { return input < states + 2 ? at<C>(call.inputs[input], i) : C{}; };
    C old[Update::kStates];
    for (int k = 0; k < Update::kStates; ++k) old[k] = value(k + 2);
    const C w = value(0);
    const auto updated = rule(w, value(1), old, Intermediates{});
    if (stepwise) {
      const auto exact = rule(w, value(1), old, lanes::WideIntermediates{});
      wide[0][i] = exact.weight;
      for (int k = 0; k < states; ++k) wide[k + 1][i] = exact.state[k];
    }
    outputs[0][i] = updated.weight;
    for (int k = 0; k < states; ++k) outputs[k + 1][i] = updated.state[k];
    outputs[update_slot][i] = updated.update;
    old_weights.push_back(w);
    shares.push_back(updated.gradient_share);
    without.push_back(updated.without_decay);
    const auto place = static_cast<size_t>(offset_of(call.outputs[0], i));
    const auto wide_weight = static_cast<double>(w), d = static_cast<double>(outputs[update_slot][i]);
    decays.push_back(static_cast<double>(updated.decay));
    terms[0][place] = wide_weight * wide_weight;
    terms[1][place] = d * d;
    terms[2][place] = static_cast<double>(value(1)) * d;
    terms[3][place] = std::abs(decays.back());
  }
  for (int slot = 0; slot < update_slot; ++slot) {
    if constexpr (stepwise)
      outputs[slot].store_stepwise(wide[slot]);
    else
      outputs[slot].store();
  }
  OutputRecord* record = wanted_record(call, update_slot);
  if (record == nullptr && call.outputs[update_slot].data == nullptr) return;
  outputs[update_slot].store();
  if (record == nullptr) return;
  UpdateCounts& counts = record->update = {};
  // By a rounding other than store()'s, of whoever gave the call FP32 outputs.
  const OutputRounding rounding(call, 0, call.inputs[0].dtype);
  const auto stored_weight = [&](int64_t i) {
    const auto place = offset_of(call.outputs[0], i);
    return rounding.is_special() ? static_cast<C>(rounding.rounded(static_cast<double>(outputs[0][i]), place))
                                 : at<C>(call.outputs[0], i);
  };
  const auto rounded = [&](C value, int64_t place) {
    if (rounding.is_special()) return rounding.rounded(static_cast<double>(value), place);
    const FloatFormat& format = *info(call.outputs[0].dtype).format;
    if (!is_narrow(format)) return static_cast<double>(value);
    const NarrowFormat& narrow = narrow_format(format);
    return static_cast<double>(narrow.widen(narrow.round(static_cast<double>(value))));
  };
  for (int64_t i = 0; i < size; ++i) {
    const auto place = offset_of(call.outputs[0], i);
    const C stored = stored_weight(i);
    terms[4][static_cast<size_t>(place)] = lanes::sign_of(decays[static_cast<size_t>(i)]) *
                                           (static_cast<double>(stored) - rounded(without[static_cast<size_t>(i)], place));
    if (outputs[update_slot][i] == 0) continue;
    const bool lost = stored == old_weights[i];
    ++counts.nonzero;
    counts.lost += lost;
    counts.lost_to_decay += lost && shares[i] == 0;
  }
  const auto sum = [&](size_t which) {
    return ordered_sum<double, kStatisticsBlock>(size, [&](int64_t i) { return terms[which][static_cast<size_t>(i)]; });
  };
  counts.learning_rate = call.attribute("lr");
  counts.weight_squares = sum(0);
  counts.update_squares = sum(1);
  counts.gradient_dot_update = sum(2);
  counts.decay_known = rule.adds_decay();
  if (lanes::adds_some_decay(rule)) {
    counts.decay_asked = sum(3);
    counts.decay_applied = sum(4);
  }
  record->update_known = true;
}

// body(intermediates) with those of the call.
template <typename Body>
auto with_intermediates(const OpCall& call, Body body) {
  const bool stepwise = call.attributes->value_or("stepwise", 0) != 0;
  const DType type = call.outputs[0].dtype;
  if (stepwise && type == DType::f16) return body(RoundedIntermediates<DType::f16>{});
  if (stepwise && type == DType::bf16) return body(RoundedIntermediates<DType::bf16>{});
  return body(lanes::WideIntermediates{});
}

template <typename C, typename Update>
void update(const OpCall& call) {
  // Weights of 16 bits are computed in FP32.
  with_intermediates(call, [&]<typename Intermediates>(Intermediates) {
    update_as<std::conditional_t<Intermediates::kRounds, float, C>, Intermediates, Update>(call);
  });
}

// The outputs' elements by themselves.
template <class Update>
struct UpdatedElement {
  const OpCall& call;
  Update rule;
  int states;

  explicit UpdatedElement(const OpCall& call_)
      : call(call_), rule(*call.attributes), states(static_cast<int>(call.inputs.size()) - 2) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    C old[Update::kStates];
    for (int k = 0; k < Update::kStates; ++k) old[k] = k < states ? in(k + 2, e) : C{};
    const C w = in(0, e), g = in(1, e);
    return with_intermediates(call, [&](auto stored) {
      const auto updated = rule(w, g, old, stored);
      return slot == 0 ? updated.weight : slot <= states ? updated.state[slot - 1] : updated.update;
    });
  }
};

template <class... U>
void add_updates(lanes::UpdateList<U...>, std::vector<Twin>& twins) {
  (twins.push_back({U::kName, update<float, U>, update<double, U>, capture<SameElements>, bounds<UpdatedElement<U>>}), ...);
}

}  // namespace

std::vector<Twin> training_twins() {
  std::vector<Twin> twins{twin<Unscale>("unscale")};
  add_updates(lanes::Updates{}, twins);
  return twins;
}

}  // namespace ulpscope::plain
