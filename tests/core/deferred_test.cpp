// Whole runs on a device that is behind the host: how often it is waited for, and that their traces are those of the CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "tests/support/deferred_backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_contents.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope {
namespace {

using ::testing::Each;

enum class Device { cpu, behind };

// What make_cpu_backend gives within its lifetime.
class DeviceScope {
 public:
  explicit DeviceScope(Device device) : before_(std::getenv(kVariable) != nullptr) { set(device == Device::behind); }
  ~DeviceScope() { set(before_); }
  DeviceScope(const DeviceScope&) = delete;

 private:
  static constexpr const char* kVariable = "ULPSCOPE_TEST_DEFERRED";
  static void set(bool deferred) { deferred ? setenv(kVariable, "1", 1) : unsetenv(kVariable); }
  bool before_;
};

Experiment preset(const char* name, const std::vector<Override>& overrides) {
  Experiment experiment = *find_preset(name);
  for (const Override& setting : overrides) apply_override(experiment, setting);
  return experiment;
}

class DeferredTest : public ::testing::Test {
 protected:
  TrainerOptions options() {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.overwrite = true;
    options.trace_path = trace_;
    return options;
  }
  // How often each step waits, on a device that is behind.
  std::vector<uint64_t> waits(const Experiment& experiment, const TrainerOptions& options) {
    const DeviceScope scope(Device::behind);
    Trainer trainer(experiment, options);
    const auto count = [&] { return waits_of(*trainer.context().backend); };
    std::vector<uint64_t> waits;
    while (!trainer.finished()) {
      const uint64_t before = count();
      trainer.step();
      waits.push_back(count() - before);
    }
    trainer.finish();
    return waits;
  }
  struct Ran {
    std::vector<double> losses;
    TrainResult result;
    std::vector<std::string> trace;
  };
  Ran run(const Experiment& experiment, Device device) {
    const DeviceScope scope(device);
    Ran ran;
    ran.result = train(experiment, options(), [&](const StepResult& step) { ran.losses.push_back(step.loss); });
    ran.trace = trace_contents(trace_, {"\"peak_memory\":"});
    return ran;
  }
  std::vector<CaptureRow> captures() { return Snapshot(trace_).captures(); }
  uint64_t count(const std::function<bool(const CaptureRow&)>& which) {
    const std::vector<CaptureRow> all = captures();
    return static_cast<uint64_t>(std::count_if(all.begin(), all.end(), which));
  }
  // Runs on both devices.
  void expect_same_traces(const Experiment& experiment, const std::string& where) {
    const Ran expected = run(experiment, Device::cpu), found = run(experiment, Device::behind);
    EXPECT_EQ(found.result.weights_fingerprint, expected.result.weights_fingerprint) << where;
    EXPECT_EQ(found.result.stop_reason, expected.result.stop_reason) << where;
    ASSERT_EQ(found.losses.size(), expected.losses.size()) << where;
    for (size_t i = 0; i < export_tables().size(); ++i) {
      // Measures are of memory that the host reads: a device's has none.
      if (export_tables()[i] == "measures") continue;
      EXPECT_TRUE(found.trace[i] == expected.trace[i]) << where << ": " << export_tables()[i];
    }
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("trace.h5");
};

const std::vector<Override> kSmall{"data.train_size=96", "data.test_size=48", "training.batch_size=16", "training.steps=7",
                                   "training.evaluation=\"never\""};

std::vector<Override> small(const std::vector<Override>& more) {
  std::vector<Override> all = kSmall;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Before the update: its records, and the rows of the step, come with the wait of the next one.
TEST_F(DeferredTest, AStepWaitsOnce) {
  const std::vector<Override> two_batches{"precision=fp16", "training.accumulation=2", "scaler.initial=1024"};
  for (const char* level : {"off", "health", "stats", "full"}) {
    std::vector<Override> overrides = small(two_batches);
    overrides.push_back(fmt::format("recording.level={}", level));
    EXPECT_THAT(waits(preset("mlp", overrides), options()), Each(1u)) << level;
  }
  EXPECT_GT(Snapshot(trace_).tensor_row_count(), 7u * 2 * 10);
  EXPECT_TRUE(captures().empty());
}

// What a step waits for beside: the values of an evaluation, and, where training may stop for it, the update.
TEST_F(DeferredTest, OtherWaits) {
  const std::vector<Override> evaluated = small({"precision=fp16", "scaler.initial=1024", "training.evaluation=epoch"});
  EXPECT_EQ(waits(preset("mlp", evaluated), options()), (std::vector<uint64_t>{1, 1, 1, 1, 1, 2, 2}));
  EXPECT_THAT(waits(preset("mlp", small({"recording.stop_on=nan"})), options()), Each(2u));
}

// Overflows in the forward and the backward pass and in what is made of the gradients, in models whose ops keep states, draw
// numbers or are computed twice: the batches run again to explain them, and training goes on as if they had not.
TEST_F(DeferredTest, TracesAreThoseOfTheCpu) {
  struct Case {
    const char* preset;
    std::vector<Override> overrides;
    std::vector<std::string> captured;  // phases
  };
  const std::vector<Case> cases{
      {"mlp", {"precision=fp16", "training.accumulation=2", "scaler.initial=16777216", "training.evaluation=epoch"}, {"backward"}},
      {"mlp", {"precision=fp16", "training.accumulation=2", "scaler.initial=3e38", "recording.level=full"}, {"scaling"}},
      {"mlp", {"precision=fp16", "optimizer.learning_rate=1e4", "training.evaluation=epoch"}, {"forward", "evaluation"}},
      {"mlp", {"optimizer.learning_rate=1e30", "clipping.norm=1"}, {"forward"}},
      {"resnet20",
       {"precision=fp16", "scaler.initial=16777216", "data.train_size=16", "training.batch_size=4", "training.steps=3"},
       {"backward"}},
      {"checkpointing", {"precision=fp16", "scaler.initial=16777216", "training.steps=3"}, {"backward"}},
      {"gpt_mini", {"precision=fp16", "scaler.initial=16777216", "training.steps=3", "training.batch_size=4"}, {"backward"}},
      {"several_optimizers", {"precision=fp16", "scaler.initial=16777216", "training.steps=3"}, {"backward"}},
      {"mlp", {"precision=fp8", "fp8.recipe=delayed", "fp8.amax_history=2", "optimizer.learning_rate=1e30"}, {"forward"}},
  };
  for (const Case& each : cases) {
    std::vector<Override> overrides = small(each.overrides);
    const std::string where = fmt::format("{} {}", each.preset, each.overrides[0].assignment);
    expect_same_traces(preset(each.preset, overrides), where);
    const Snapshot trace(trace_);
    std::set<std::string> phases;
    for (const CaptureRow& row : captures()) phases.insert(name_of(trace.ops()[trace.tensors()[row.tensor].op].phase));
    EXPECT_THAT(phases, ::testing::IsSupersetOf(each.captured)) << where;
  }
}

// An update cannot run again: it is explained when its records come, from the weights and states that it left and the gradients
// that were kept. Where these came from is not known then.
TEST_F(DeferredTest, UpdatesAreExplainedAfterwards) {
  const Experiment experiment = preset(
      "mlp", small({"precision=pure_fp16", "optimizer.math=fp32", "optimizer.learning_rate=1e6", "training.evaluation=epoch"}));
  const auto of_updates = [&](Device device) {
    run(experiment, device);
    const Snapshot trace(trace_);
    std::vector<CaptureRow> rows = trace.captures();
    std::erase_if(rows,
                  [&](const CaptureRow& row) { return trace.ops()[trace.tensors()[row.tensor].op].phase != Phase::optimizer; });
    return rows;
  };
  const std::vector<CaptureRow> expected = of_updates(Device::cpu), found = of_updates(Device::behind);
  std::map<std::tuple<uint64_t, uint32_t>, std::vector<const CaptureRow*>> nodes;
  for (const CaptureRow& row : expected) nodes[{row.step, row.tensor}].push_back(&row);
  ASSERT_GT(found.size(), 4u);
  uint64_t origins = 0, gone = 0;
  for (const CaptureRow& row : found) {
    const std::vector<const CaptureRow*> same = nodes[{row.step, row.tensor}];
    ASSERT_LT(row.node, same.size());
    const CaptureRow& other = *same[row.node];
    EXPECT_EQ(row.element, other.element);
    EXPECT_EQ(row.operand, other.operand);
    EXPECT_TRUE(row.value == other.value || (std::isnan(row.value) && std::isnan(other.value))) << row.value << " " << other.value;
    EXPECT_EQ(row.overwritten, other.overwritten);
    origins += row.parent < 0;
    if (row.parent < 0 || row.overwritten) continue;
    EXPECT_EQ(row.follow, CaptureFollow::gone);
    ++gone;
  }
  EXPECT_EQ(origins, nodes.size());
  EXPECT_EQ(gone, origins);  // the gradient of each
}

// Of an update and of a gradient.
TEST_F(DeferredTest, TheFirstNonfiniteOutputIsToldWithItsStep) {
  const std::vector<Override> updates = small({"precision=pure_fp16", "optimizer.math=fp32", "optimizer.learning_rate=1e6"});
  const std::vector<Override> scaled = small({"precision=fp16", "scaler.initial=16777216", "training.accumulation=2"});
  for (const Experiment& experiment : {preset("mlp", updates), preset("mlp", scaled)}) {
    std::vector<std::string> found[2];
    for (const Device device : {Device::cpu, Device::behind}) {
      const DeviceScope scope(device);
      TrainerOptions watching = options();
      watching.watch_nonfinite = true;
      train(experiment, watching, [&](const StepResult& step) {
        found[device == Device::behind].push_back(step.nonfinite
                                                      ? fmt::format("{} {} {}", step.nonfinite->op, step.nonfinite->micro_batch,
                                                                    step.nonfinite->nan + step.nonfinite->infinite)
                                                      : "");
      });
    }
    EXPECT_NE(found[0][0], "");
    EXPECT_EQ(found[0], found[1]);
  }
}

// What is not complete when training ends, or is saved, is waited for.
TEST_F(DeferredTest, ACheckpointAndTheEndWaitForTheRowsOfAllSteps) {
  const DeviceScope scope(Device::behind);
  Trainer trainer(preset("mlp", small({"precision=fp16"})), options());
  trainer.step();
  trainer.step();
  trainer.save_checkpoint(folder_.file("checkpoint"));
  EXPECT_EQ(Snapshot(trace_).step_count(), 2u);
  trainer.step();
  EXPECT_EQ(trainer.finish("enough").trace.committed_steps, 3u);
  const Snapshot trace(trace_);
  EXPECT_EQ(trace.step_count(), 3u);
  EXPECT_EQ(trace.events().back().text, "training stopped: enough");
  EXPECT_EQ(trace.events().back().step, 2u);
}

}  // namespace
}  // namespace ulpscope
