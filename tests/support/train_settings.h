// Settings that advice names, as `ulpscope train` records them of a run in FP16 with its defaults, or in FP8 with delayed scaling.
#pragma once

#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

inline std::vector<SettingInfo> train_settings() {
  using Kind = SettingKind;
  return {{"precision", "\"fp8\"", Kind::precision, true},
          {"recording.level", "\"stats\"", Kind::recording_level, false},
          {"loss.ignore_index", "-100", Kind::other, false},
          {"optimizer.math", "\"param\"", Kind::update_math, false},
          {"optimizer.master_weights", "false", Kind::master_weights, false},
          {"scaler.enabled", "\"auto\"", Kind::scale_enabled, false},
          {"scaler.initial", "65536", Kind::scale_initial, false},
          {"scaler.growth_interval", "2000", Kind::scale_growth_interval, false},
          {"scaler.dynamic", "true", Kind::scale_dynamic, false},
          {"fp8.recipe", "\"delayed\"", Kind::quantization_recipe, true},
          {"fp8.margin", "0", Kind::quantization_margin, false},
          {"fp8.amax_history", "1024", Kind::quantization_history, false},
          {"fp8.amax", "\"max\"", Kind::other, false},
          {"arithmetic.accumulate", "\"fp32\"", Kind::accumulation, false},
          {"arithmetic.rounding", "\"rne\"", Kind::rounding, false},
          {"arithmetic.subnormals", "\"keep\"", Kind::subnormals, false},
          {"autocast.ops", "{}", Kind::precision_of_ops, false},
          {"autocast.modules", "{}", Kind::precision_of_modules, false},
          {"arithmetic.ops", "{}", Kind::arithmetic_of_ops, false}};
}

}  // namespace ulpscope
