// What a trace says of the run that it is of.
#pragma once

#include <optional>

#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// All but the run's id. `scaled`: it has a gradient scaler. `parent`: what it goes on from.
RunInfo describe_run(const Experiment& experiment, const Backend& backend, bool scaled,
                     const std::optional<CheckpointInfo>& parent);

// With which a run computes as the described one did, as far as the description tells and this machine can.
CpuOptions cpu_as_in(const RunInfo& run);

}  // namespace ulpscope
