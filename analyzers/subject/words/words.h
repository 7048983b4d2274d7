// How users of the program that wrote a trace write what advice is about: the values of its settings, what they type where the
// trace has no setting to name, and code that does what advice says.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/report/setting_change.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// Code for the program that wrote a trace depends on these.
struct Program {
  std::string_view device;  // RunInfo::backend: "cuda"
  std::span<const SettingInfo> settings;
  bool casts_weights = false;  // PrecisionFacts
  bool scales_loss = false;
};

struct ProducerWords {
  std::string_view off, on;                      // a switch's values
  std::string_view fp32, bf16;                   // types
  std::string_view bf16_with_wide_weights = {};  // SettingKind::precision: ops in BF16 and weights in FP32; "": no value says that
  std::string_view current_scaling;              // SettingKind::quantization_recipe: the scale of a tensor is taken from itself
  std::string_view parameter_math;               // SettingKind::update_math: each operation is rounded to the parameter's type
  std::string_view stochastic_updates;           // SettingKind::arithmetic_of_ops: those that update weights round so
  // Settings that have no kind, by name; "": the producer has none.
  std::string_view loss_function, ignored_targets;
  std::string_view steps;            // how many the run is to have; 0: something else decides
  std::string_view bce_with_logits;  // of loss_function
  std::string_view observe = {},
                   eager = {};  // how a tensor is recorded that no op made, and compiled code as ops; "": there is no way
  // Functions that autocast computes in FP32 on a GPU and in the narrow type on the CPU.
  std::span<const OpFunction> wide_on_gpu = {};
  // It says what changes a setting of that kind on that device, of that module where it is one of modules; "": nothing is known to.
  std::string (*without_setting)(SettingKind kind, std::string_view module, std::string_view device);
  // Lines that make a change which `advice` names, and that do what a sentence of it says that names no change; "": nobody can
  // tell. nullptr: code of none.
  std::string (*code_of_change)(const SettingChange& change, const Sentences& advice, const Program& program) = nullptr;
  std::string (*code_of_sentence)(const Sentence& advice, const Program& program) = nullptr;
};

extern const ProducerWords ulpscope_words, torch_words, neutral_words;

// The name of the producer decides.
const ProducerWords& words_of(const RunInfo& run);

}  // namespace ulpscope
