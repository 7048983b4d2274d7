#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

// Values are TOML. Every setting of the engine is in its traces.
constinit const ProducerWords ulpscope_words{
    .off = "false",
    .on = "true",
    .fp32 = "\"fp32\"",
    .bf16 = "\"bf16\"",
    .bf16_with_wide_weights = "\"bf16\"",
    .current_scaling = "\"current\"",
    .parameter_math = "\"param\"",
    .stochastic_updates = "{ rounding = \"sr\" }",
    .loss_function = "loss.function",
    .ignored_targets = "loss.ignore_index",
    .steps = "training.steps",
    .bce_with_logits = "\"bce_with_logits\"",
    .without_setting = [](SettingKind, std::string_view, std::string_view) { return std::string(); }};

}  // namespace ulpscope
