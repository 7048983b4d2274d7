// Ids: the same in every precision, at every level, filter and interval, for all ops but casts.
#include <gmock/gmock.h>
#include <unistd.h>

#include <set>

#include "tests/support/engine_fixture.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope {
namespace {

using IdentitySet = std::set<std::tuple<uint64_t, std::string, std::string>>;  // id, op, module

// What every step of a run dispatched, step by step.
class IdentityCollector : public Observer {
 public:
  void after(const OpEvent& event) override {
    steps.resize(std::max<size_t>(steps.size(), context().step + 1));
    if (event.op.name == "cast") {
      casts.insert(event.id);
    } else {
      const bool added = steps[context().step].emplace(event.id, event.op.name, event.module).second;
      EXPECT_TRUE(added) << "id of " << event.op.name << " in " << event.module << " came twice in a step";
    }
  }
  std::vector<IdentitySet> steps;
  std::set<uint64_t> casts;
};

Experiment small_experiment(Precision precision) {
  Experiment experiment = *find_preset("conv_sine");
  experiment.data.height = experiment.data.width = 8;
  for (LayerSpec& layer : experiment.model.layers) {
    const bool is_conv2d = layer.type->name == "conv2d";
    if (is_conv2d && layer.integer("out_channels") > 1) layer.set("out_channels", int64_t{4});
    if (is_conv2d) layer.set("in_channels", int64_t{0});
    if (layer.type->name == "batch_norm") layer.set("features", int64_t{0});
  }
  experiment.training.steps = 3;
  experiment.precision = precision;
  experiment.scaler.enabled = Switch::on;  // so that scaling ops are the same
  return experiment;
}

IdentityCollector collect(const Experiment& experiment, const std::string& trace) {
  TrainerOptions options;
  options.cpu.threads = 1;
  options.trace_path = trace;
  options.overwrite = true;
  Trainer trainer(experiment, options);
  IdentityCollector collector;
  trainer.context().observers.push_back(&collector);
  while (!trainer.finished()) trainer.step();
  trainer.finish();
  return collector;
}

TEST(IdentityTest, IsTheSameInEveryPrecisionLevelFilterAndInterval) {
  const std::string trace = ::testing::TempDir() + "ulpscope_identity_" + std::to_string(getpid()) + ".h5";
  const IdentityCollector reference = collect(small_experiment(Precision::fp32), trace);
  ASSERT_EQ(reference.steps.size(), 3u);
  EXPECT_GT(reference.steps[1].size(), 40u);
  EXPECT_EQ(reference.steps[1], reference.steps[2]) << "ids differ between steps";

  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    Experiment experiment = small_experiment(precision);
    const IdentityCollector plain = collect(experiment, trace);
    EXPECT_EQ(plain.steps, reference.steps) << name_of(precision);
    EXPECT_EQ(plain.casts.empty(), precision == Precision::fp32);
    for (const RecordLevel level : {RecordLevel::health, RecordLevel::full}) {
      experiment.recording.level = level;
      EXPECT_EQ(collect(experiment, trace).steps, reference.steps) << name_of(precision) << " " << name_of(level);
    }
    experiment.recording.every = 2;
    experiment.recording.modules = {"3*"};
    experiment.recording.ops = {"conv2d*"};
    EXPECT_EQ(collect(experiment, trace).steps, reference.steps) << name_of(precision) << " filtered";
  }
  std::remove(trace.c_str());
}

}  // namespace
}  // namespace ulpscope
