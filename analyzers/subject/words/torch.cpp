#include <fmt/format.h>

#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

namespace {

std::string python_for(SettingKind kind, std::string_view module) {
  // A group of modules is one itself.
  while (module.ends_with('*') || module.ends_with('.')) module.remove_suffix(1);
  switch (kind) {
    case SettingKind::scale_enabled:
      return "GradScaler(enabled=True)";
    case SettingKind::scale_initial:
      return "GradScaler(init_scale=...)";
    case SettingKind::scale_growth_interval:
      return "GradScaler(growth_interval=...)";
    case SettingKind::master_weights:
      return "model.float()";
    case SettingKind::precision_of_modules:
      // Inside of it nothing is cast any more, so that FP16 from outside would meet FP32 weights.
      return module.empty()
                 ? ""
                 : fmt::format("torch.autocast(device_type, enabled=False) around {}, and .float() on its inputs", module);
    default:
      return "";
  }
}

}  // namespace

// Values are Python.
constinit const ProducerWords torch_words{.off = "False",
                                          .on = "True",
                                          .fp32 = "torch.float32",
                                          .bf16 = "torch.bfloat16",
                                          .current_scaling = "current",
                                          .parameter_math = "param",
                                          .stochastic_updates = "stochastic",
                                          .loss_function = "",
                                          .ignored_targets = "",
                                          .steps = "",
                                          .bce_with_logits = "binary_cross_entropy_with_logits",
                                          .without_setting = python_for};

}  // namespace ulpscope
