#include "ulpscope/emulation/loss_scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace ulpscope {

namespace {

// Where the libraries agree on a value it is the default; what is written here is what differs.
constexpr std::array<std::pair<std::string_view, LossScaleRule>, 7> kRules{{
    {"pytorch", {}},
    {"keras", {.initial = 0x1p15}},
    {"tensorflow", {.initial = 0x1p15, .floor = 1}},
    {"deepspeed", {.growth_interval = 1000, .hysteresis = 2, .floor = 1, .growth_lag = 1}},
    {"megatron", {.initial = 0x1p32, .growth_interval = 1000, .hysteresis = 2, .floor = 1}},
    {"apex", {.cap = 0x1p24}},
    {"mxnet", {.cap = 0x1p24, .is_delayed = true}},
}};

// Scales are FP32 values, as in all of these libraries.
double to_scale(double value) { return static_cast<float>(value); }

// 1 / S must stay finite in FP32, so no scale lies below the smallest normal value even where the rule has no floor.
constexpr double kLeast = std::numeric_limits<float>::min();

// The scale that the rule makes of `base` at the end of a step.
double decided(const LossScaleRule& rule, LossScaleState& state, double base, bool found_nonfinite) {
  if (found_nonfinite) {
    state.growth_tracker = 0;
    if (state.hysteresis_left > 1) {
      --state.hysteresis_left;
      return base;
    }
    return std::min(base, std::max({to_scale(base * rule.backoff_factor), rule.floor, kLeast}));
  }
  if (++state.growth_tracker < rule.growth_interval + rule.growth_lag) return base;
  state.growth_tracker = rule.growth_lag;
  // The patience with overflows is restored by a growth alone: while it is used up, each overflow backs off at once.
  state.hysteresis_left = rule.hysteresis;
  double grown = base * rule.growth_factor;
  if (rule.cap > 0) grown = std::max(base, std::min(grown, rule.cap));
  return grown <= std::numeric_limits<float>::max() ? to_scale(grown) : base;
}

}  // namespace

std::optional<LossScaleRule> find_loss_scale_rule(std::string_view name) {
  for (const auto& [known, rule] : kRules) {
    if (known == name) return rule;
  }
  return std::nullopt;
}

LossScaleState initial_state(const LossScaleRule& rule) {
  return {to_scale(rule.initial), 0, rule.hysteresis, to_scale(rule.initial)};
}

LossScaleChange update(const LossScaleRule& rule, LossScaleState& state, bool found_nonfinite) {
  if (!rule.dynamic) return LossScaleChange::none;
  const double before = state.scale, base = state.next_scale;
  state.next_scale = decided(rule, state, base, found_nonfinite);
  state.scale = rule.is_delayed ? base : state.next_scale;
  return state.scale < before ? LossScaleChange::backoff : state.scale > before ? LossScaleChange::growth : LossScaleChange::none;
}

}  // namespace ulpscope
