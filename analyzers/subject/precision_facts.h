// Which settings of mixed precision a run has: advice that names one must be about one that can be set.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/subject/advice.h"
#include "ulpscope/analyzers/subject/step_facts.h"

namespace ulpscope {

// By the roles of the tensors.
struct PrecisionFacts {
  bool casts_weights = false;                      // autocast does: the run follows its lists
  bool updates_narrow_weights = false;             // a 16-bit parameter has no FP32 master weight
  bool has_short_range = false;                    // some gradient's 16-bit type has not the range of FP32
  bool scales_loss = false, adapts_scale = false;  // by a factor that stays, or that a dynamic scaler changes
  const ProducerWords* words = &neutral_words;     // of who wrote the trace
};
PrecisionFacts precision_facts(const Snapshot& reader, const StepFacts& steps);
// Advice to scale the loss, or to scale it more, in such a run, as a phrase that begins a sentence: a gradient scaler cannot
// unscale 16-bit gradients. `goes_on`: with another way out behind it, ", or use BF16".
Advice scaling_advice(const PrecisionFacts& facts, const SettingNames& settings, bool goes_on = false);
// A setting that is a scale, as a phrase: "scaler.initial, now 2^16"; where the trace has none, what its producer's users write.
Value scale_setting(const SettingNames& settings, SettingKind kind);
// A 16-bit type with the range of FP32 has no wider one to go to.
bool has_range_of_fp32(DType dtype);

// "Record the run in FP32 (precision = "fp32"): `ulpscope scale` of that trace shows which loss scale fits."
Sentence wide_recording_tells(const SettingNames& settings);

// Of gradients, before the update.
bool clips_by_value(const OpInfo& op);

// How FP8 tensors get their scales, "current" or "delayed"; "": there are none.
std::string quantization_recipe(const Snapshot& reader);

// An attribute of an op as it stands there; "": it has none of that name.
std::string_view attribute_text(const OpInfo& op, std::string_view name);
// The number that it is, or nothing: it has none of that name, or calls differ.
std::optional<double> attribute(const OpInfo& op, std::string_view name);

}  // namespace ulpscope
