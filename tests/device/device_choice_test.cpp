// The device that a run computes on: how it is named, what it does not compute, how runs go on on another one, and what is left of
// a run whose device is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/counting_backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/usage_error.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/kernels/devices.h"
#include "ulpscope/studies/trial.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Experiment chosen_experiment(const char* preset, const std::vector<Override>& overrides) {
  Experiment experiment = *find_preset(preset);
  for (const Override& setting : overrides) apply_override(experiment, setting);
  return experiment;
}

class DeviceChoice : public ::testing::Test {
 protected:
  TrainerOptions options(const char* device) const {
    TrainerOptions options;
    options.cpu.threads = 1;
    options.make_backend = maker_of_device(device);
    options.trace_path = trace_;
    return options;
  }
  Experiment mlp(uint64_t steps) const {
    return chosen_experiment("mlp", {"precision=fp16", "arithmetic.accumulate=h100", "data.train_size=96", "data.test_size=48",
                                     "training.evaluation=\"never\"", fmt::format("training.steps={}", steps)});
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("trace.h5"), checkpoint_ = folder_.file("run.ckpt");
};

TEST_F(DeviceChoice, DevicesHaveNames) {
  EXPECT_FALSE(maker_of_device("cpu"));
  EXPECT_EQ(maker_of_device("emulated")()->description(), maker_of_device("emulated:h100")()->description());
  EXPECT_THAT(maker_of_device("emulated:a100")()->description(), HasSubstr("a100"));
  for (const char* device : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999", "cpu:0"})
    EXPECT_THAT(usage_error_of([&] { maker_of_device(device); }),
                AllOf(HasSubstr("cuda:N"), HasSubstr(fmt::format("'{}'", device))));
  for (const char* gpu : {"", "h1000"})
    EXPECT_THAT(usage_error_of([&] { maker_of_device(fmt::format("emulated:{}", gpu)); }),
                AllOf(HasSubstr("a100, "), HasSubstr(fmt::format("'{}'", gpu))));
}

// Before a trace is there.
TEST_F(DeviceChoice, WhatADeviceLacksIsToldAtTheStart) {
  struct Case {
    const char* preset;
    std::vector<Override> overrides;
    std::vector<const char*> told;
  };
  const Case cases[] = {
      {"mlp", {"arithmetic.accumulate=a100"}, {"linear", "f32", "a100", "fp32 or h100", "module '0'"}},
      {"mlp", {"precision=bf16", "arithmetic.accumulate=v100"}, {"linear", "bf16", "v100", "fp32 or h100", "module '0'"}},
      {"mlp", {"precision=fp16", "arithmetic.accumulate=exact"}, {"linear", "f16", "exact", "module '0'"}},
      {"mlp", {"precision=fp64"}, {"FP64"}},
      {"mlp",
       {"precision=fp8", "arithmetic.accumulate=h100"},
       {"scaled_matmul", "e4m3", "expected fp32 for factors", "module '0'"}},
  };
  for (const Case& each : cases) {
    const std::string error = usage_error_of([&] { Trainer(chosen_experiment(each.preset, each.overrides), options("emulated")); });
    for (const char* told : each.told) EXPECT_THAT(error, HasSubstr(told)) << each.overrides[0].assignment;
    EXPECT_FALSE(std::filesystem::exists(trace_)) << each.overrides[0].assignment;
  }
}

TEST_F(DeviceChoice, RunsGoOnOnAnotherDevice) {
  TrainerOptions whole = options("cpu");
  whole.trace_path.clear();
  const uint64_t expected = train(mlp(4), whole).weights_fingerprint;
  for (const auto& [first, second] : {std::pair{"cpu", "emulated"}, {"emulated", "cpu"}}) {
    TrainerOptions begun = options(first), resumed = options(second);
    begun.trace_path.clear();
    resumed.trace_path.clear();
    Trainer trainer(mlp(4), begun);
    for (int step = 0; step < 2; ++step) trainer.step();
    trainer.save_checkpoint(checkpoint_);
    resumed.resume_from = checkpoint_;
    EXPECT_EQ(train(mlp(4), resumed).weights_fingerprint, expected) << first;
  }
}

TEST_F(DeviceChoice, CapsulesRunAgainOnAnotherDevice) {
  for (const auto& [first, second] : {std::pair{"cpu", "emulated"}, {"emulated", "cpu"}}) {
    TrainerOptions kept = options(first);
    kept.trace_path.clear();
    kept.capsule.path = folder_.file(fmt::format("{}.capsule", first));
    kept.capsule.event = CapsuleEvent::step;
    kept.capsule.step = 3;
    kept.capsule.keep_steps = 2;
    train(mlp(4), kept);
    Trial trial;
    trial.capsule = kept.capsule.path;
    trial.make_backend = maker_of_device(second);
    EXPECT_TRUE(run(trial).is_as_before()) << first;
  }
}

// From some call on nothing comes of it.
class LostBackend final : public CountingBackend {
 public:
  explicit LostBackend(std::unique_ptr<Backend> inner, int taken)
      : CountingBackend(*inner), inner_(std::move(inner)), left_(taken) {}
  void submit(const OpCall& call) override {
    --left_;
    check();
    CountingBackend::submit(call);
  }
  void complete() override {
    check();
    CountingBackend::complete();
  }
  void copy_to_host(const void* from, void* to, size_t bytes) override {
    check();
    CountingBackend::copy_to_host(from, to, bytes);
  }
  void copy_from_host(const void* from, void* to, size_t bytes) override {
    check();
    CountingBackend::copy_from_host(from, to, bytes);
  }

 private:
  void check() const {
    if (left_ < 0) throw failed_error("the device is lost");
  }
  std::unique_ptr<Backend> inner_;
  int left_;
};

TEST_F(DeviceChoice, TheTraceOfALostDeviceIsClosed) {
  // A step has fewer than 100 calls: some of these are in each of its parts.
  for (int calls = 150; calls < 250; calls += 7) {
    TrainerOptions lost = options("emulated");
    lost.overwrite = true;
    lost.make_backend = [&, make = lost.make_backend] { return std::make_unique<LostBackend>(make(), calls); };
    Trainer trainer(mlp(50), lost);
    EXPECT_THROW(while (true) trainer.step(), Error);
    const TrainResult result = trainer.finish("an error: the device is lost");
    EXPECT_EQ(result.stop_reason, "an error: the device is lost");
    const Snapshot trace(trace_);
    EXPECT_EQ(trace.writer_state(), WriterState::closed);
    EXPECT_GT(trace.step_count(), 0u);
    ASSERT_FALSE(trace.events().empty());
    EXPECT_THAT(trace.events().back().text, HasSubstr("the device is lost"));
  }
}

}  // namespace
}  // namespace ulpscope
