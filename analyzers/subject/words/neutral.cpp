#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

// Values are plain names: nothing is known of the producer.
constinit const ProducerWords neutral_words{
    .off = "false",
    .on = "true",
    .fp32 = "fp32",
    .bf16 = "bf16",
    .current_scaling = "current",
    .parameter_math = "param",
    .stochastic_updates = "stochastic",
    .loss_function = "",
    .ignored_targets = "",
    .steps = "",
    .bce_with_logits = "bce_with_logits",
    .without_setting = [](SettingKind, std::string_view, std::string_view) { return std::string(); }};

const ProducerWords& words_of(const RunInfo& run) {
  if (is_of_own_engine(run)) return ulpscope_words;
  return run.producer == "torch" ? torch_words : neutral_words;
}

}  // namespace ulpscope
