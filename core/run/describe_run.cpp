#include "ulpscope/core/run/describe_run.h"

#include <fmt/format.h>

#include "ulpscope/kernels/cpu_in_use.h"
#include "ulpscope/recorder/new_run.h"

namespace ulpscope {

namespace {

// The types that tensors of the run have: "f32,bf16,e4m3".
std::string types_of(const PrecisionRow& row, const Fp8Settings& fp8) {
  const std::string_view lower = info(row.dtype).name;
  if (row.dtype == DType::f32) return std::string(lower);
  const bool narrow_only = row.casts_model && !row.batch_norm_fp32 && !row.output_fp32;
  std::string types = narrow_only ? std::string(lower) : fmt::format("f32,{}", lower);
  if (row.fp8) {
    for (const DType type : {fp8.forward_type(), fp8.backward_type()})
      if (types.find(info(type).name) == std::string::npos) types += fmt::format(",{}", info(type).name);
  }
  return types;
}

}  // namespace

RunInfo describe_run(const Experiment& experiment, const Backend& backend, bool scaled,
                     const std::optional<CheckpointInfo>& parent) {
  RunInfo run;
  if (parent) {
    run.parent_run = parent->run_id;
    run.parent_step = static_cast<int64_t>(parent->step);
  }
  run.producer = "ulpscope train";
  run.producer_version = ULPSCOPE_VERSION;
  run.experiment = to_toml(experiment);
  run.experiment_name = experiment.name;
  run.seed = experiment.seed;
  run.precision = name_of(experiment.precision);
  run.arithmetic = describe(experiment.arithmetic);
  run.backend = backend.name();
  run.machine = backend.description();
  run.dtypes = types_of(row_of(experiment.precision), experiment.fp8);
  run.level = experiment.recording.level;
  run.every = experiment.recording.every;
  run.filters = experiment.recording.filters();
  if (const LossScaleRule rule = experiment.scaler_rule(); scaled && rule.dynamic) {
    run.dynamic_loss_scale = true;
    run.growth_interval = rule.growth_interval;
    run.growth_factor = rule.growth_factor;
    run.backoff_factor = rule.backoff_factor;
  }
  run.started = utc_now();
  return run;
}

CpuOptions cpu_as_in(const RunInfo& run) {
  CpuOptions options;
  const std::optional<CpuOptions> cpu = cpu_options_of(run.machine);
  if (!cpu || cpu->threads > kMostThreads) return options;
  options.threads = cpu->threads;
  if (cpu->isa != cpu_options_in_use().isa && is_in_use(cpu->isa)) options.isa = cpu->isa;
  return options;
}

}  // namespace ulpscope
