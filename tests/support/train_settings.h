// Settings that advice names, as `ulpscope train` records them of a run in FP16 with its defaults, or in FP8 with delayed scaling.
#pragma once

#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

inline std::vector<SettingInfo> train_settings() {
  using Kind = SettingKind;
  return {{"loss.ignore_index", "-100", Kind::other, false},
          {"optimizer.math", "\"param\"", Kind::update_math, false},
          {"optimizer.master_weights", "false", Kind::master_weights, false},
          {"scaler.enabled", "\"auto\"", Kind::scale_enabled, false},
          {"scaler.initial", "65536", Kind::scale_initial, false},
          {"scaler.growth_interval", "2000", Kind::scale_growth_interval, false},
          {"scaler.dynamic", "true", Kind::scale_dynamic, false},
          {"fp8.recipe", "\"delayed\"", Kind::other, true},
          {"fp8.margin", "0", Kind::other, false},
          {"fp8.amax_history", "1024", Kind::other, false},
          {"fp8.amax", "\"max\"", Kind::other, false},
          {"arithmetic.accumulate", "\"fp32\"", Kind::arithmetic, false},
          {"arithmetic.rounding", "\"rne\"", Kind::arithmetic, false},
          {"arithmetic.subnormals", "\"keep\"", Kind::arithmetic, false},
          {"autocast.ops", "{}", Kind::precision, false},
          {"autocast.modules", "{}", Kind::precision, false},
          {"arithmetic.ops", "{}", Kind::arithmetic, false}};
}

}  // namespace ulpscope
