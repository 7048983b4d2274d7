#include "ulpscope/analyzers/subject/precision_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/parse_number.h"

namespace ulpscope {

PrecisionFacts precision_facts(const Snapshot& reader, const StepFacts& steps) {
  PrecisionFacts facts;
  std::set<std::string_view> narrow, masters;
  for (const TensorInfo& tensor : reader.tensors()) {
    facts.casts_weights = facts.casts_weights || tensor.role == Role::weight_cast;
    if (tensor.role == Role::weight && is_narrow(tensor.dtype)) narrow.insert(tensor.parameter);
    if (tensor.role == Role::master_weight) masters.insert(tensor.parameter);
    facts.has_short_range =
        facts.has_short_range || (is_gradient(tensor.role) && is_plainly_narrow(tensor.dtype) && !has_range_of_fp32(tensor.dtype));
  }
  facts.updates_narrow_weights = !std::includes(masters.begin(), masters.end(), narrow.begin(), narrow.end());
  facts.adapts_scale = reader.run().dynamic_loss_scale;
  facts.scales_loss = facts.adapts_scale || steps.scales_loss();
  return facts;
}

Advice scaling_advice(const PrecisionFacts& facts, const SettingNames& settings) {
  using Kind = SettingKind;
  Advice advice;
  // A scaler that multiplies by 1 is switched on.
  const bool multiplies_by_one = settings.number(Kind::scale_initial) == 1.0 && !settings.is_off(Kind::scale_enabled);
  if (facts.adapts_scale) {
    advice.text = "Begin with a larger loss scale" + in_brackets({advice.raise(settings.name(Kind::scale_initial))}) +
                  ", or let it grow sooner" + in_brackets({advice.lower(settings.name(Kind::scale_growth_interval))});
  } else if (facts.scales_loss || multiplies_by_one) {
    advice.text = "Use a larger loss scale" + in_brackets({advice.raise(settings.name(Kind::scale_initial))}) +
                  ", or one that adapts" + in_brackets({advice.set(settings.switched(Kind::scale_dynamic, true))});
  } else if (!facts.updates_narrow_weights) {
    advice.text = "Switch the gradient scaler on" + in_brackets({advice.set(settings.switched(Kind::scale_enabled, true))});
  } else {
    advice.text = "Keep FP32 master weights and switch the gradient scaler on" +
                  in_brackets({advice.set(settings.switched(Kind::master_weights, true)),
                               advice.set(settings.switched(Kind::scale_enabled, true))});
  }
  if (settings.number(Kind::loss_factor).value_or(1) <= 0.1)
    advice += ", or raise the factor of the loss, which makes gradients as small" +
              in_brackets({advice.raise(settings.now(Kind::loss_factor))});
  return advice;
}

std::string typed_place(const PrecisionFacts& facts, const OpInfo& op) {
  const bool is_of_module = facts.casts_weights && op.kind == OpKind::cast && !op.module.empty();
  return is_of_module ? fmt::format("module {}, which it was cast for,", op.module) : "this op";
}

void note_wide_types(const PrecisionFacts& facts, const OpInfo& op, DType made, Advice& advice) {
  if (facts.casts_weights)
    advice.note({.kind = op.module.empty() ? SettingKind::precision_of_ops : SettingKind::precision_of_modules,
                 .value = "\"fp32\"",
                 .module = op.module.empty() ? op.name : op.module});
  else
    advice.note({.kind = SettingKind::precision, .value = "\"fp32\""});
  if (!has_range_of_fp32(made)) advice.note({.kind = SettingKind::precision, .value = "\"bf16\""});
}

bool has_range_of_fp32(DType dtype) { return info(dtype).format->largest_exponent() >= binary32.largest_exponent(); }

std::string wide_recording_tells(const SettingNames& settings) {
  return "`ulpscope scale` of a recording in FP32 tells" + in_brackets({settings.now(SettingKind::precision)});
}

bool clips_by_value(const OpInfo& op) { return op.phase == Phase::scaling && op.function == OpFunction::clamp; }

std::string quantization_recipe(const Snapshot& reader) {
  const auto has = [&](OpFunction function) {
    return std::any_of(reader.ops().begin(), reader.ops().end(), [&](const OpInfo& op) { return op.function == function; });
  };
  if (!has(OpFunction::quantize)) return "";
  return has(OpFunction::amax_history_update) ? "delayed" : "current";
}

std::optional<double> attribute(const OpInfo& op, std::string_view name) {
  std::istringstream items(op.attributes);
  for (std::string item; items >> item;) {
    if (!item.starts_with(name) || item.size() <= name.size() || item[name.size()] != '=') continue;
    return parse_number<double>(std::string_view(item).substr(name.size() + 1));
  }
  return std::nullopt;
}

}  // namespace ulpscope
