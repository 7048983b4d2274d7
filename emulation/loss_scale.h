// The rule by which a dynamic loss scale changes, as a value type: what a gradient scaler does, and what an analyzer replays.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ulpscope {

// Defaults are PyTorch's. All of it can be set.
struct LossScaleRule {
  double initial = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // clean steps in a row before the scale grows
  int64_t hysteresis = 1;          // overflowing steps before the scale backs off
  double floor = 0.0;              // the scale never backs off below it; 0: no floor
  double cap = 0.0;                // nor grows above it; 0: no cap but the largest finite FP32 value
  bool dynamic = true;             // false: the scale stays at `initial`, overflowing steps are still skipped
  int64_t growth_lag = 0;          // clean steps besides the interval before the first growth after an overflow, or after the start
  bool is_delayed = false;         // what a step decides becomes the scale at the end of the next one, which decides from there
};

// Rules by the name of the library that they come from: "pytorch", "keras", "tensorflow", "deepspeed" (0.19.8, as its ZeRO
// optimizers have it), "megatron", "apex", "mxnet" (1.9.1).
std::optional<LossScaleRule> find_loss_scale_rule(std::string_view name);

struct LossScaleState {
  double scale = 65536.0;
  int64_t growth_tracker = 0;  // clean steps since the last change
  int64_t hysteresis_left = 1;
  double next_scale = 65536.0;  // that the next update begins with: another one than `scale` where the rule is delayed

  bool operator==(const LossScaleState&) const = default;
};

enum class LossScaleChange : uint8_t { none, growth, backoff };

LossScaleState initial_state(const LossScaleRule& rule);

// One update at the end of a step. `found_nonfinite`: some unscaled gradient held an Inf or a NaN, and the step was skipped.
LossScaleChange update(const LossScaleRule& rule, LossScaleState& state, bool found_nonfinite);

}  // namespace ulpscope
