#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

const char* name_of(Phase phase) {
  constexpr const char* kNames[kPhases] = {"data",    "forward",       "recompute", "loss",      "backward",
                                           "scaling", "communication", "optimizer", "evaluation"};
  return kNames[static_cast<size_t>(phase)];
}

const char* name_of(Role role) {
  constexpr const char* kNames[kRoles] = {"input",
                                          "activation",
                                          "activation_gradient",
                                          "weight",
                                          "weight_cast",
                                          "weight_gradient",
                                          "accumulated_gradient",
                                          "unscaled_gradient",
                                          "master_weight",
                                          "optimizer_state",
                                          "update",
                                          "loss",
                                          "buffer"};
  return kNames[static_cast<size_t>(role)];
}

const char* name_of(RecordLevel level) {
  constexpr const char* kNames[] = {"off", "health", "stats", "full"};
  return kNames[static_cast<size_t>(level)];
}

const char* name_of(WriterState state) {
  constexpr const char* kNames[] = {"alive", "closed", "dead"};
  return kNames[static_cast<size_t>(state)];
}

const char* name_of(EventKind kind) {
  constexpr const char* kNames[kEventKinds] = {"scale_growth", "scale_backoff", "nonfinite",      "warning", "level_lowered",
                                               "stopped",      "metric",        "memory_changed", "note",    "cut_short"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(OpKind kind) {
  constexpr const char* kNames[kOpKinds] = {"other",     "source", "cast", "product",  "normalization", "elementwise",
                                            "reduction", "update", "loss", "quantize", "collective",    "opaque"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(Meaning meaning) {
  constexpr const char* kNames[kMeanings] = {"value",
                                             "factor",
                                             "addend",
                                             "subtrahend",
                                             "dividend",
                                             "divisor",
                                             "base",
                                             "exponent",
                                             "mask",
                                             "index",
                                             "shape",
                                             "target",
                                             "weight",
                                             "bias",
                                             "query",
                                             "key",
                                             "gradient",
                                             "bias_gradient",
                                             "result",
                                             "loss",
                                             "mean",
                                             "variance",
                                             "inverse_deviation",
                                             "running_mean",
                                             "running_variance",
                                             "norm",
                                             "count",
                                             "log_sum_exp",
                                             "scale",
                                             "inverse_scale",
                                             "amax",
                                             "amax_history",
                                             "found_nonfinite",
                                             "state",
                                             "gates",
                                             "parameter",
                                             "momentum",
                                             "first_moment",
                                             "second_moment",
                                             "update"};
  return kNames[static_cast<size_t>(meaning)];
}

const char* name_of(Reduction reduction) {
  constexpr const char* kNames[kReductionKinds] = {
      "nothing", "dimensions",    "last_dimension", "rows", "inner_dimension", "windows", "all_but_channels",
      "groups",  "equal_indices", "all_elements",   "ranks"};
  return kNames[static_cast<size_t>(reduction)];
}

const char* name_of(SettingKind kind) {
  constexpr const char* kNames[kSettingKinds] = {"other",
                                                 "precision",
                                                 "scale_enabled",
                                                 "scale_dynamic",
                                                 "scale_initial",
                                                 "scale_growth_interval",
                                                 "scale_growth_factor",
                                                 "scale_backoff_factor",
                                                 "optimizer",
                                                 "learning_rate",
                                                 "weight_decay",
                                                 "epsilon",
                                                 "momentum",
                                                 "second_moment",
                                                 "master_weights",
                                                 "update_math",
                                                 "clip_norm",
                                                 "batch_size",
                                                 "arithmetic",
                                                 "accumulation",
                                                 "rounding",
                                                 "subnormals",
                                                 "arithmetic_of_ops",
                                                 "precision_of_ops",
                                                 "precision_of_modules",
                                                 "clip_value",
                                                 "warmup",
                                                 "loss_factor",
                                                 "scale_cap",
                                                 "quantization_recipe",
                                                 "quantization_margin",
                                                 "quantization_history",
                                                 "recording_level",
                                                 "recording_interval",
                                                 "recording_limit",
                                                 "scale_floor",
                                                 "micro_batches"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(MetricKind kind) {
  constexpr const char* kNames[kMetricKinds] = {"other", "evaluation_loss", "evaluation_accuracy"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(CaptureFollow follow) {
  constexpr const char* kNames[kCaptureFollows] = {"none", "followed", "gone", "given"};
  return kNames[static_cast<size_t>(follow)];
}

}  // namespace ulpscope
