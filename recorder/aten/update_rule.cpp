#include "ulpscope/recorder/aten/update_rule.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ulpscope::aten {
namespace {

constexpr int64_t kBlock = 4096;

const OptimizerState* find(std::span<const OptimizerState> states, std::string_view name) {
  const auto at = std::find_if(states.begin(), states.end(), [&](const OptimizerState& state) { return state.name == name; });
  return at == states.end() ? nullptr : &*at;
}

// Calls body(begin, n, blocks) for each block of elements, with the values of each tensor there.
template <size_t N, typename Body>
void for_each_block(const std::array<const HostTensor*, N>& tensors, int64_t elements, const Body& body) {
  std::array<TensorView, N> views;
  std::array<std::vector<double>, N> values;
  for (size_t i = 0; i < N; ++i)
    if (tensors[i] != nullptr) {
      views[i] = folded(*tensors[i]);
      values[i].resize(static_cast<size_t>(std::min(kBlock, elements)));
    }
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    for (size_t i = 0; i < N; ++i)
      if (tensors[i] != nullptr) read_values(views[i], begin, n, values[i].data());
    body(begin, n, values);
  }
}

}  // namespace

std::optional<AskedUpdate> asked_update(const ulpscope_aten_update& rule, const HostTensor& weight, const HostTensor* gradient,
                                        std::span<const OptimizerState> states) {
  AskedUpdate asked;
  asked.dtype = weight.dtype == DType::f64 ? DType::f64 : DType::f32;
  int64_t elements = 1;
  for (const int64_t extent : weight.shape) elements *= extent;
  if (asked.dtype == DType::f64)
    asked.wide.resize(static_cast<size_t>(elements));
  else
    asked.narrow.resize(static_cast<size_t>(elements));
  const auto put = [&](int64_t element, double value) {
    const auto at = static_cast<size_t>(element);
    if (asked.dtype == DType::f64)
      asked.wide[at] = value;
    else
      asked.narrow[at] = static_cast<float>(value);
  };
  const double rate = rule.learning_rate, decay = rule.weight_decay;
  if (rule.rule == ULPSCOPE_ATEN_SGD && gradient != nullptr) {
    const OptimizerState* const momentum = find(states, "momentum_buffer");
    if (rule.momentum != 0 && momentum == nullptr) return std::nullopt;
    for_each_block(std::array{&weight, gradient, rule.momentum != 0 ? &momentum->values : nullptr}, elements,
                   [&](int64_t begin, int64_t n, const auto& values) {
                     for (int64_t i = 0; i < n; ++i) {
                       const auto at = static_cast<size_t>(i);
                       double step = values[1][at];
                       if (rule.maximize) step = -step;
                       if (decay != 0) step = step + decay * values[0][at];
                       if (rule.momentum != 0) step = rule.nesterov ? step + rule.momentum * values[2][at] : values[2][at];
                       put(begin + i, -rate * step);
                     }
                   });
    return asked;
  }
  if (rule.rule == ULPSCOPE_ATEN_ADAM) {
    const OptimizerState *const first = find(states, "exp_avg"), *second = find(states, "max_exp_avg_sq");
    if (second == nullptr) second = find(states, "exp_avg_sq");
    if (first == nullptr || second == nullptr || !(rule.steps > 0)) return std::nullopt;
    const double first_bias = 1 - std::pow(rule.first_decay, rule.steps), second_bias = 1 - std::pow(rule.second_decay, rule.steps);
    const bool decays = decay != 0 && rule.decoupled;
    for_each_block(std::array{&weight, &first->values, &second->values}, elements,
                   [&](int64_t begin, int64_t n, const auto& values) {
                     for (int64_t i = 0; i < n; ++i) {
                       const auto at = static_cast<size_t>(i);
                       double step = values[1][at] / first_bias / (std::sqrt(values[2][at] / second_bias) + rule.epsilon);
                       if (decays) step = step + decay * values[0][at];
                       put(begin + i, -rate * step);
                     }
                   });
    return asked;
  }
  return std::nullopt;
}

}  // namespace ulpscope::aten
