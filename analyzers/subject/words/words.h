// How users of the program that wrote a trace write what advice is about: the values of its settings, and what they type where the
// trace has no setting to name.
#pragma once

#include <string>
#include <string_view>

#include "ulpscope/trace/records.h"

namespace ulpscope {

struct ProducerWords {
  std::string_view off, on;             // a switch's values
  std::string_view fp32, bf16;          // types
  std::string_view current_scaling;     // SettingKind::quantization_recipe: the scale of a tensor is taken from itself
  std::string_view parameter_math;      // SettingKind::update_math: each operation is rounded to the parameter's type
  std::string_view stochastic_updates;  // SettingKind::arithmetic_of_ops: those that update weights round so
  // Settings that have no kind, by name; "": the producer has none.
  std::string_view loss_function, ignored_targets;
  std::string_view steps;            // how many the run is to have; 0: something else decides
  std::string_view bce_with_logits;  // of loss_function
  // It says what changes a setting of that kind, of that module where it is one of modules; "": nothing is known to.
  std::string (*without_setting)(SettingKind kind, std::string_view module);
};

extern const ProducerWords ulpscope_words, torch_words, neutral_words;

// The name of the producer decides.
const ProducerWords& words_of(const RunInfo& run);

}  // namespace ulpscope
