#include "ulpscope/recorder/aten/update_rule.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ulpscope/recorder/value_blocks.h"

namespace ulpscope::aten {
namespace {

constexpr int64_t kBlock = 4096;

// The rules, for the elements from `begin` on, into `d`.
template <typename Number>
void sgd(const ulpscope_aten_update& rule, const Number* w, const Number* g, const Number* momentum, int64_t n, Number* d) {
  const auto rate = static_cast<Number>(-rule.learning_rate), decay = static_cast<Number>(rule.weight_decay),
             share = static_cast<Number>(rule.momentum), sign = static_cast<Number>(rule.maximize ? -1 : 1);
  if (momentum != nullptr && !rule.nesterov) {
    for (int64_t i = 0; i < n; ++i) d[i] = rate * momentum[i];
  } else if (momentum != nullptr) {
    for (int64_t i = 0; i < n; ++i) d[i] = rate * (sign * g[i] + decay * w[i] + share * momentum[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) d[i] = rate * (sign * g[i] + decay * w[i]);
  }
}

template <typename Number>
void adam(const ulpscope_aten_update& rule, double steps, const Number* w, const Number* mean, const Number* square, int64_t n,
          Number* d) {
  const auto rate = static_cast<Number>(-rule.learning_rate), epsilon = static_cast<Number>(rule.epsilon),
             decay = static_cast<Number>(rule.decoupled ? rule.weight_decay : 0),
             mean_factor = static_cast<Number>(1 / (1 - std::pow(rule.first_decay, steps))),
             root_factor = static_cast<Number>(1 / std::sqrt(1 - std::pow(rule.second_decay, steps)));
  for (int64_t i = 0; i < n; ++i)
    d[i] = rate * (mean[i] * mean_factor / (std::sqrt(square[i]) * root_factor + epsilon) + decay * w[i]);
}

template <typename Number>
bool compute(const ulpscope_aten_update& rule, double steps, const HostTensor& weight, const HostTensor* gradient,
             std::span<const OptimizerState> states, Room& room) {
  std::vector<std::string_view> names;
  for (const OptimizerState& state : states) names.push_back(state.name);
  const std::optional<RuleStates> read = states_of_rule(rule, names, steps > 0);
  if (!read || (gradient == nullptr && rule.rule == ULPSCOPE_ATEN_SGD)) return false;
  const OptimizerState* const first = read->first ? &states[*read->first] : nullptr;
  const OptimizerState* const second = read->second ? &states[*read->second] : nullptr;
  int64_t elements = 1;
  for (const int64_t extent : weight.shape) elements *= extent;
  auto* const d = reinterpret_cast<Number*>(room.of(static_cast<size_t>(elements) * sizeof(Number)));
  const auto blocks_of = [](const HostTensor* tensor) {
    return tensor == nullptr ? ValueBlocks<Number>() : ValueBlocks<Number>(folded(*tensor));
  };
  ValueBlocks<Number> w(folded(weight)), g = blocks_of(gradient), mean = blocks_of(first == nullptr ? nullptr : &first->values),
                                         square = blocks_of(second == nullptr ? nullptr : &second->values);
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    if (rule.rule == ULPSCOPE_ATEN_SGD)
      sgd(rule, w.at(begin, n), g.at(begin, n), mean.at(begin, n), n, d + begin);
    else
      adam(rule, steps, w.at(begin, n), mean.at(begin, n), square.at(begin, n), n, d + begin);
  }
  return true;
}

}  // namespace

std::optional<RuleStates> states_of_rule(const ulpscope_aten_update& rule, std::span<const std::string_view> names,
                                         bool knows_steps) {
  const auto find = [&](std::string_view name) -> std::optional<size_t> {
    const auto at = std::find(names.begin(), names.end(), name);
    return at == names.end() ? std::nullopt : std::optional(static_cast<size_t>(at - names.begin()));
  };
  RuleStates states;
  if (rule.rule == ULPSCOPE_ATEN_SGD) {
    if (rule.momentum != 0) states.first = find("momentum_buffer");
    if (rule.momentum != 0 && !states.first) return std::nullopt;
    return states;
  }
  if (rule.rule != ULPSCOPE_ATEN_ADAM) return std::nullopt;
  states.first = find("exp_avg");
  states.second = find("max_exp_avg_sq");
  if (!states.second) states.second = find("exp_avg_sq");
  return states.first && states.second && knows_steps ? std::optional(states) : std::nullopt;
}

std::optional<DType> asked_update(const ulpscope_aten_update& rule, double steps, const HostTensor& weight,
                                  const HostTensor* gradient, std::span<const OptimizerState> states, Room& room) {
  const bool is_wide = weight.dtype == DType::f64;
  const bool is_known = is_wide ? compute<double>(rule, steps, weight, gradient, states, room)
                                : compute<float>(rule, steps, weight, gradient, states, room);
  return is_known ? std::optional(is_wide ? DType::f64 : DType::f32) : std::nullopt;
}

}  // namespace ulpscope::aten
