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
  constexpr const char* kNames[kEventKinds] = {"scale_growth", "scale_backoff", "nonfinite", "warning",  "level_lowered",
                                               "stopped",      "metric",        "note",      "cut_short"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace ulpscope
