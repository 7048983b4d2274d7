// Ids: the same in every step, in every precision, at every level, filter and interval, for all ops but casts.
#include <gmock/gmock.h>
#include <unistd.h>

#include <map>
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
    const std::string name(event.op.name);
    const auto [constant, is_new] = constants_.try_emplace(event.id, constants_of(event.attributes));
    EXPECT_EQ(constant->second, constants_of(event.attributes)) << name << " in " << event.module << ": an attribute varies";
    if (name == "cast") {
      casts.insert(event.id);
      return;
    }
    steps.resize(std::max<size_t>(steps.size(), context().step + 1));
    const bool added = seen_.emplace(context().step, event.phase, event.micro_batch, event.id).second;
    EXPECT_TRUE(added) << "id of " << name << " in " << event.module << " came twice in a pass";
    steps[context().step].emplace(event.id, name, event.module);
  }
  std::vector<IdentitySet> steps;
  std::set<uint64_t> casts;

 private:
  static std::map<std::string, double> constants_of(const Attributes& attributes) {
    std::map<std::string, double> constants;
    for (size_t i = 0; i < attributes.items().size(); ++i) {
      if (!attributes.varies(i)) constants.emplace(attributes.items()[i].name, attributes.items()[i].value);
    }
    return constants;
  }
  std::set<std::tuple<uint64_t, Phase, uint32_t, uint64_t>> seen_;
  std::map<uint64_t, std::map<std::string, double>> constants_;  // of each id
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

// With everything that a run can do: batches of two sizes, clipping, momentum, an evaluation after every epoch of three steps.
Experiment evaluated_experiment(Precision precision) {
  Experiment experiment = *find_preset("mlp");
  experiment.data.train_size = 40;
  experiment.data.test_size = 24;
  experiment.data.drop_last = false;
  experiment.training.batch_size = 16;
  experiment.training.evaluation = Evaluation::epoch;
  experiment.training.evaluation_batch_size = 0;
  experiment.training.steps = 7;
  experiment.optimizer.type = OptimizerType::sgd;
  experiment.optimizer.momentum = 0.9;
  experiment.clipping = {.norm = 1, .value = 0.5};
  experiment.loss.factor = 0.5;
  experiment.precision = precision;
  experiment.scaler.enabled = Switch::on;
  experiment.scaler.initial = 1024;  // no step is skipped
  experiment.scaler.growth_interval = 2;
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

// The attributes of the op table hold in every call as well: the collector looks.
TEST(IdentityTest, IsTheSameInEvaluationsAndSmallerBatches) {
  const std::string trace = ::testing::TempDir() + "ulpscope_identity_evaluation_" + std::to_string(getpid()) + ".h5";
  const IdentityCollector reference = collect(evaluated_experiment(Precision::fp32), trace);
  ASSERT_EQ(reference.steps.size(), 7u);
  EXPECT_EQ(reference.steps[2], reference.steps[5]) << "ids of two evaluations differ";
  EXPECT_EQ(reference.steps[3], reference.steps[4]);
  EXPECT_GT(reference.steps[2].size(), reference.steps[1].size());
  for (const Precision precision : {Precision::fp16, Precision::bf16})
    EXPECT_EQ(collect(evaluated_experiment(precision), trace).steps, reference.steps) << name_of(precision);
  std::remove(trace.c_str());
}

// Programs of random ops on two parameters, each used several times: at once, through views and casts, in several modules.
class SharedParameters : public EngineTest {
 protected:
  // The ids, phases, ops, modules, forward ids, micro-batches and roles of all ops but casts, of two forward and backward passes.
  using Seen = std::set<std::tuple<uint64_t, Phase, std::string, std::string, uint64_t, uint32_t, Role>>;
  Seen run(uint64_t program, Autocast* autocast) {
    class Collector : public Observer {
     public:
      void after(const OpEvent& event) override {
        if (event.op.name == "cast") return;
        EXPECT_TRUE(seen.emplace(event.id, event.phase, event.op.name, event.module, event.forward_id, event.micro_batch,
                                 event.labels[0].role)
                        .second)
            << event.op.name;
      }
      Seen seen;
    } collector;
    std::vector<Tensor> values;
    for (const char* name : {"first.w", "second.w"}) {
      Tensor w = random(DType::f32, {4, 4}, values.size(), -0.25, 0.25);
      w.body()->parameter = intern(name);
      w.body()->module = intern(std::string(name).substr(0, std::string(name).find('.')));
      w.set_requires_grad(true);
      values.push_back(w);
    }
    context_.observers = {&collector};
    context_.begin_step(program);
    run_pass(program, autocast, values);
    context_.begin_pass(1, 0);
    run_pass(program, autocast, values);
    context_.observers.clear();
    return collector.seen;
  }

 private:
  static void run_pass(uint64_t program, Autocast* autocast, std::vector<Tensor> values) {
    const Philox random_bits(program, 1);
    uint64_t drawn = 0;
    const auto below = [&](uint64_t limit) { return random_bits.bits(drawn++) % limit; };
    Tensor loss;
    {
      const AutocastScope scope(autocast);
      for (int i = 0; i < 12; ++i) {
        static constexpr const char* kModules[] = {"first", "second", "third"};
        const ModuleScope module(intern(kModules[below(3)]));
        // Parameters come twice as often as what was made of them.
        const auto value = [&] { return values[below(2) ? below(2) : below(values.size())]; };
        const Tensor a = value(), b = value();
        static constexpr const char* kOps[] = {"matmul", "matmul", "linear", "add", "sub", "mul", "relu", "transpose"};
        const Op& op = find_op(kOps[below(8)]);
        const Tensor inputs[] = {a, b};
        values.push_back(dispatch(op, {inputs, op.inputs == 1 ? 1u : 2u})[0]);
      }
      loss = sum(values[0]);
      for (size_t i = 1; i < values.size(); ++i) loss = add(loss, mean(values[i]));
    }
    backward(loss);
  }
};

TEST_F(SharedParameters, HaveTheSameIdsInEveryPrecision) {
  int sums = 0;
  for (uint64_t program = 0; program < 300; ++program) {
    const auto reference = run(program, nullptr);
    for (const DType lower : {DType::f16, DType::bf16}) {
      AutocastPolicy policy{.dtype = lower, .ops = {}, .modules = {}};
      if (program % 3 > 0) policy.ops = {{"add", lower}, {"relu", DType::f32}};
      if (program % 3 > 1) policy.modules = {{"second", lower}};
      Autocast autocast(policy);
      ASSERT_EQ(run(program, &autocast), reference) << "program " << program << " in " << info(lower).name;
    }
    for (const auto& [id, phase, op, module, forward_id, micro_batch, role] : reference)
      sums += phase == Phase::backward && op == "add" && forward_id == 0;  // of a parameter's gradients
  }
  EXPECT_GT(sums, 300);
}

// A sum of a parameter's gradients is named after the parameter, not after the op that changed it last.
TEST_F(SharedParameters, HaveTheSameIdsAfterAnUpdate) {
  class Collector : public Observer {
   public:
    void after(const OpEvent& event) override { ids.push_back(event.id); }
    std::vector<uint64_t> ids;
  };
  Tensor w = random(DType::f32, {4, 4});
  w.body()->parameter = intern("w");
  w.set_requires_grad(true);
  std::vector<uint64_t> ids[2];
  for (auto& each : ids) {
    Collector collector;
    context_.begin_step(0);
    context_.observers = {&collector};
    backward(sum(matmul(w, w)));
    context_.observers.clear();
    each = collector.ids;
    w.set_grad(Tensor());
    const NoGrad no_grad;
    call("accumulate", {w, random(DType::f32, {4, 4}, 1)});
  }
  EXPECT_EQ(ids[0], ids[1]);
}

TEST(CallCounters, AnswerNotedCallsAgain) {
  CallCounters counters;
  for (const uint64_t key : {7, 7, 9}) counters.next(key);
  std::vector<CallCounters::Call> outer, inner;
  std::vector<uint32_t> first;
  {
    const CallCounters::Notes notes(counters, outer);
    for (const uint64_t key : {7, 9}) first.push_back(counters.next(key));
    const CallCounters::Notes within(counters, inner);
    for (const uint64_t key : {7, 11}) first.push_back(counters.next(key));
  }
  counters.next(7);  // noted no more
  EXPECT_EQ(first, (std::vector<uint32_t>{2, 1, 3, 0}));
  std::vector<uint32_t> again;
  CallCounters replayed(outer);
  for (const uint64_t key : {7, 9, 7, 11}) again.push_back(replayed.next(key));
  EXPECT_EQ(again, first);
  CallCounters part(inner);
  EXPECT_EQ(part.next(7), 3);
  EXPECT_EQ(part.next(11), 0);
}

// What an op is, readers of traces know by its function alone.
TEST(Ops, EveryOpHasAFunction) {
  for (const Op* op : all_ops()) {
    if (op->is_view) continue;
    EXPECT_NE(op->function, OpFunction::other) << op->name;
  }
}

}  // namespace
}  // namespace ulpscope
