#include "ulpscope/analyzers/subject/precision_facts.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/parse_number.h"

namespace ulpscope {

PrecisionFacts precision_facts(const Snapshot& reader, const StepFacts& steps) {
  PrecisionFacts facts;
  facts.words = &words_of(reader.run());
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

namespace {

constexpr Template kScaleMoreOrSooner{
    "advice.scale_more_or_sooner",
    "Start with a larger loss scale{initial:brackets}, or shorten its growth interval{interval:brackets}{factor}"};
constexpr Template kScaleMoreOrAdapt{"advice.scale_more_or_adapt",
                                     "Use a larger loss scale{initial:brackets}, or a dynamic one{dynamic:brackets}{factor}"};
constexpr Template kSwitchScalerOn{"advice.switch_scaler_on", "Enable loss scaling{enabled:brackets}{factor}"};
constexpr Template kKeepMastersAndScale{"advice.keep_masters_and_scale",
                                        "Use FP32 master weights and loss scaling{settings:brackets}{factor}"};
constexpr Template kOrRaiseLossFactor{"advice.or_raise_loss_factor", ", or raise the loss factor{factor:brackets}"};
constexpr Template kRaiseLossFactor{"advice.raise_loss_factor_too", ", raise the loss factor{factor:brackets}"};
constexpr Template kScaleSetting{"setting.scale", "{setting}, now {value}"};
constexpr Template kWideRecordingTells{
    "advice.wide_recording_tells",
    "Record the run in FP32{precision:brackets}: `ulpscope scale` of that trace shows which loss scale fits."};

}  // namespace

Value scale_setting(const SettingNames& settings, SettingKind kind) {
  const Setting name = settings.name(kind).words;
  const std::optional<double> now = settings.number(kind);
  return now ? Value(kScaleSetting({{"setting", name}, {"value", {*now, Unit::scale}}})) : Value(name);
}

Advice scaling_advice(const PrecisionFacts& facts, const SettingNames& settings, bool goes_on) {
  using Kind = SettingKind;
  Advice advice;
  const auto factor = [&]() -> Value {
    if (!(settings.number(Kind::loss_factor).value_or(1) <= 0.1)) return {};
    advice.raise(settings.name(Kind::loss_factor));
    return (goes_on ? kRaiseLossFactor : kOrRaiseLossFactor)({{"factor", scale_setting(settings, Kind::loss_factor)}});
  };
  // A scaler that multiplies by 1 is switched on.
  const bool multiplies_by_one = settings.number(Kind::scale_initial) == 1.0 && !settings.is_off(Kind::scale_enabled);
  if (facts.adapts_scale) {
    const Setting interval = advice.lower(settings.now_or_name(Kind::scale_growth_interval));
    advice.raise(settings.name(Kind::scale_initial));
    advice.text = kScaleMoreOrSooner(
        {{"initial", scale_setting(settings, Kind::scale_initial)}, {"interval", interval}, {"factor", factor()}});
  } else if (facts.scales_loss || multiplies_by_one) {
    const Setting dynamic = advice.set(settings.switched(Kind::scale_dynamic, true));
    advice.raise(settings.name(Kind::scale_initial));
    advice.text =
        kScaleMoreOrAdapt({{"initial", scale_setting(settings, Kind::scale_initial)}, {"dynamic", dynamic}, {"factor", factor()}});
  } else if (!facts.updates_narrow_weights) {
    const Setting enabled = advice.set(settings.switched(Kind::scale_enabled, true));
    advice.text = kSwitchScalerOn({{"enabled", enabled}, {"factor", factor()}});
  } else {
    const Setting masters = advice.set(settings.switched(Kind::master_weights, true));
    const Setting enabled = advice.set(settings.switched(Kind::scale_enabled, true));
    advice.text = kKeepMastersAndScale({{"settings", Value::list({masters, enabled})}, {"factor", factor()}});
  }
  return advice;
}

bool has_range_of_fp32(DType dtype) { return info(dtype).format->largest_exponent() >= binary32.largest_exponent(); }

Sentence wide_recording_tells(const SettingNames& settings) {
  SettingMention precision = settings.proposed(SettingKind::precision, settings.words().fp32);
  precision.words.now.clear();
  return kWideRecordingTells({{"precision", precision}});
}

bool clips_by_value(const OpInfo& op) { return op.phase == Phase::scaling && op.function == OpFunction::clamp; }

std::string quantization_recipe(const Snapshot& reader) {
  const auto has = [&](OpFunction function) {
    return std::any_of(reader.ops().begin(), reader.ops().end(), [&](const OpInfo& op) { return op.function == function; });
  };
  if (!has(OpFunction::quantize)) return "";
  return has(OpFunction::amax_history_update) ? "delayed" : "current";
}

std::string_view attribute_text(const OpInfo& op, std::string_view name) {
  for (std::string_view rest = op.attributes; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    if (item.size() > name.size() && item.starts_with(name) && item[name.size()] == '=') return item.substr(name.size() + 1);
  }
  return {};
}

std::optional<double> attribute(const OpInfo& op, std::string_view name) {
  const std::string_view text = attribute_text(op, name);
  return text.empty() ? std::nullopt : parse_number<double>(text);
}

}  // namespace ulpscope
