// Whole runs on a device, whose code runs on the host: products of a GPU's matrix units, as the CPU predicts them, give the losses,
// weights and traces of a run on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/support/trace_contents.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/kernels/device/emulated_backend.h"

namespace ulpscope {
namespace {

// A preset, smaller.
struct Tiny {
  const char* preset;
  std::vector<Override> overrides;
};
void PrintTo(const Tiny& tiny, std::ostream* out) { *out << tiny.preset; }

Experiment experiment_of(const Tiny& tiny) {
  Experiment experiment = *find_preset(tiny.preset);
  const std::vector<Override> common{"arithmetic.accumulate=h100", "training.steps=2", "training.evaluation=\"never\""};
  for (const auto* overrides : {&common, &tiny.overrides})
    for (const Override& setting : *overrides) apply_override(experiment, setting);
  return experiment;
}

class DeviceRuns : public ::testing::TestWithParam<Tiny> {
 protected:
  struct Ran {
    std::vector<double> losses;
    TrainResult result;
    std::vector<std::string> trace;
  };
  Ran run(const Experiment& experiment, bool on_device) {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.overwrite = true;
    options.trace_path = trace_;
    if (on_device) options.make_backend = [] { return make_emulated_device_backend(7, "h100"); };
    Ran ran;
    ran.result = train(experiment, options, [&](const StepResult& step) { ran.losses.push_back(step.loss); });
    ran.trace = trace_contents(trace_, {"\"peak_memory\":"});
    return ran;
  }
  void expect_same_runs(const Tiny& tiny) {
    const Experiment experiment = experiment_of(tiny);
    const std::string where = fmt::format("{} {}", tiny.preset, tiny.overrides.empty() ? "" : tiny.overrides[0].assignment);
    const Ran expected = run(experiment, false), found = run(experiment, true);
    EXPECT_EQ(found.losses, expected.losses) << where;
    EXPECT_EQ(found.result.weights_fingerprint, expected.result.weights_fingerprint) << where;
    for (size_t i = 0; i < export_tables().size(); ++i) {
      if (export_tables()[i] == "run") continue;  // it tells the machine
      // Measures are of memory that the host reads: a device's has none.
      if (export_tables()[i] == "measures") continue;
      EXPECT_TRUE(found.trace[i] == expected.trace[i]) << where << ": " << export_tables()[i];
    }
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("trace.h5");
};

TEST_P(DeviceRuns, GivesTheTraceOfTheCpu) { expect_same_runs(GetParam()); }

std::vector<Tiny> runs() {
  std::vector<Tiny> all;
  for (const char* precision : {"fp16", "bf16", "fp32"})
    all.push_back({"mlp", {fmt::format("precision={}", precision), "data.train_size=96", "data.test_size=48"}});
  // A scale that overflows: steps are skipped, and the batch runs again to tell why.
  all.push_back({"mlp", {"precision=fp16", "scaler.initial=16777216", "data.train_size=96", "recording.level=full"}});
  for (const char* precision : {"fp16", "fp32", "pure_bf16"})
    all.push_back(
        {"mlp", {fmt::format("precision={}", precision), "recording.level=full", "data.train_size=96", "data.test_size=48"}});
  for (const char* name : {"accumulation", "apex_levels", "autoencoder", "bf16_without_scaler", "checkpointing", "clipping",
                           "fashion_cnn", "gru_text", "keras_policy", "lstm_text", "odd_dimensions", "pure_fp16", "scaler_mlp",
                           "several_optimizers", "transformer_seq2seq", "underflow"})
    all.push_back({name, {"training.batch_size=4"}});
  all.push_back({"conv_sine", {"data.height=32", "data.width=32", "training.batch_size=1"}});
  all.push_back({"gpt_mini", {"training.batch_size=1", "training.steps=1"}});
  all.push_back({"resnet20", {"training.batch_size=2", "training.steps=1"}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Presets, DeviceRuns, ::testing::ValuesIn(runs()),
                         [](const auto& run) { return fmt::format("{}_{}", run.index, run.param.preset); });

}  // namespace
}  // namespace ulpscope
