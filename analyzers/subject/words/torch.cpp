#include "ulpscope/analyzers/subject/words/torch_code.h"
#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

namespace {

// Functions that at::autocast lists for CUDA (ATen/autocast_mode.h, AT_FORALL_FP32 and those with a set dtype), and not for the
// CPU.
constexpr OpFunction kWideOnGpu[] = {OpFunction::exp,
                                     OpFunction::log,
                                     OpFunction::pow,
                                     OpFunction::rsqrt,
                                     OpFunction::reciprocal,
                                     OpFunction::softmax,
                                     OpFunction::masked_softmax,
                                     OpFunction::log_softmax,
                                     OpFunction::logsumexp,
                                     OpFunction::layer_norm,
                                     OpFunction::group_norm,
                                     OpFunction::rms_norm,
                                     OpFunction::sum,
                                     OpFunction::norm};

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
                                          .observe = "ulpscope.observe(name, tensor)",
                                          .eager = "ulpscope.record(..., compile=\"eager\")",
                                          .wide_on_gpu = kWideOnGpu,
                                          .without_setting = torch_words_for,
                                          .code_of_change = torch_code_of_change,
                                          .code_of_sentence = torch_code_of_sentence};

}  // namespace ulpscope
