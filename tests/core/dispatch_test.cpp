// The one door: what passes it, what it promotes and broadcasts, and the errors it gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "tests/recorder/memory_sink.h"
#include "tests/support/counting_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/name_printer.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/observe/recording.h"
#include "ulpscope/core/optim/grad_scaler.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DispatchTest : public EngineTest {};

TEST_F(DispatchTest, EveryOpOfATrainingStepReachesTheBackend) {
  CountingBackend counting(*backend_);
  context_.backend = &counting;
  {
    Tensor w = random(DType::f32, {4, 3});
    w.body()->parameter = intern("w");
    w.set_requires_grad(true);
    Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
    auto optimizer = make_adam({{w, intern("w"), intern("")}}, 0.1, {});
    GradScaler scaler({.initial = 1024});  // keeps the FP16 gradients finite
    Tensor loss;
    {
      const AutocastScope scope(&autocast);
      loss = cross_entropy(call("linear", {random(DType::f32, {2, 3}, 1), w}), labels({1, 2}));
    }
    backward(scaler.scale_loss(loss));
    const Tensor found = scaler.unscale(*optimizer);
    EXPECT_TRUE(scaler.step(*optimizer, read_scalars({&found, 1})[0] != 0));
    w.set_grad(Tensor());
    EXPECT_EQ(context_.host_reads, 1u);
  }
  EXPECT_EQ(counting.calls["cast"], 5);  // x, w and the logits in forward; the gradients of logits and w in backward
  for (const char* op : {"linear", "cross_entropy", "scale", "fill", "cross_entropy_backward", "matmul", "unscale", "adam_update"})
    EXPECT_GE(counting.calls[op], 1) << op;
  context_.backend = backend_.get();
}

TEST_F(DispatchTest, TensorsOfOneDeviceAreNoInputsOnAnother) {
  const Tensor here = scalar(DType::f32, 1);
  CountingBackend other(*backend_);
  context_.backend = &other;
  EXPECT_THAT(usage_error_of([&] { add(scalar(DType::f32, 2), here); }),
              HasSubstr(fmt::format("add: input 1 lies on another device, {}, than the op runs on, counting", backend_->name())));
  EXPECT_EQ(other.calls["add"], 0);
  context_.backend = backend_.get();
}

TEST_F(DispatchTest, AnObserverSeesOpsInTheOrderOfExecution) {
  std::ostringstream names;
  NamePrinter printer(names);
  context_.observers.push_back(&printer);
  relu(add(scalar(DType::f32, 1), scalar(DType::f32, 2)));
  EXPECT_EQ(names.str(), "add\nrelu\n");
}

// Asks for the same of every output, and keeps what came.
class Asking : public Observer {
 public:
  Asking(StatisticsLevel level, int samples) : level_(level), samples_(samples) {}
  void before(const OpEvent&, std::span<OutputRecord* const> records) override {
    for (OutputRecord* record : records) {
      record->wanted = std::max(record->wanted, level_);
      record->samples_wanted = std::max(record->samples_wanted, samples_);
    }
  }
  void after(const OpEvent& event) override {
    context().backend->complete();
    seen.push_back(*event.call.records[0]);
  }
  std::vector<OutputRecord> seen;

 private:
  StatisticsLevel level_;
  int samples_;
};

TEST_F(DispatchTest, EveryObserverGetsWhatItAsksFor) {
  const Tensor x = random(DType::f16, {100});
  OutputRecord expected;
  expected.wanted = StatisticsLevel::values;
  collect_statistics(HostView(relu(x)).view(), expected);
  const auto recorded = [&](RecordLevel level, Asking* other, bool first) {
    MemorySink sink;
    Recorder recorder(sink, {.level = level});
    RecordingObserver recording(recorder, *backend_);
    context_.observers = {&recording};
    if (other) context_.observers.insert(first ? context_.observers.begin() : context_.observers.end(), other);
    context_.begin_step(0);
    recorder.begin_step(0);
    relu(x);
    recorder.end_step({});
    context_.observers.clear();
    return sink;
  };
  for (const RecordLevel level : {RecordLevel::health, RecordLevel::stats, RecordLevel::full}) {
    const MemorySink alone = recorded(level, nullptr, false);
    for (const bool first : {false, true}) {
      Asking more(StatisticsLevel::values, 7), less(StatisticsLevel::health, 0);
      for (Asking* other : {&more, &less}) {
        const MemorySink beside = recorded(level, other, first);
        ASSERT_EQ(beside.rows.size(), 1u);
        EXPECT_EQ(beside.rows[0].known, alone.rows.at(0).known);
        EXPECT_EQ(beside.rows[0].statistics, alone.rows[0].statistics);
        EXPECT_EQ(beside.samples.size(), alone.samples.size());
      }
      EXPECT_EQ(more.seen.at(0).statistics.histogram, expected.statistics.histogram);
      EXPECT_GE(more.seen[0].samples, 7);
      EXPECT_GE(less.seen.at(0).known, StatisticsLevel::health);
      EXPECT_EQ(less.seen[0].statistics.zeros, expected.statistics.zeros);
    }
  }
}

// What every output is and which loss scale it contains, through a step of mixed precision with a scale of 1024.
TEST_F(DispatchTest, RolesAndLossScalesFollowFromTheDefinitions) {
  class Labels : public Observer {
   public:
    void after(const OpEvent& event) override {
      for (size_t i = 0; i < event.outputs.size(); ++i) {
        if (!is_float(event.outputs[i].dtype())) continue;
        const OutputLabel& label = event.labels[i];
        seen.push_back(fmt::format("{} {}{}: {}{} x{}", name_of(event.phase), event.op.name, i ? fmt::format(" {}", i) : "",
                                   name_of(label.role), label.parameter ? " of " + *label.parameter : "",
                                   event.outputs[i].body()->loss_scale));
      }
    }
    std::vector<std::string> seen;
  } labels_seen;
  Tensor w = random(DType::f32, {3, 3}), gain = random(DType::f32, {3}, 1, 0.5, 2);
  w.body()->parameter = intern("w");
  gain.body()->parameter = intern("gain");
  std::vector<OptimizedParameter> parameters;
  for (Tensor* parameter : {&w, &gain}) {
    parameter->set_requires_grad(true);
    parameters.push_back({*parameter, parameter->body()->parameter, intern("")});
  }
  Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
  const auto optimizer = make_adam(parameters, 0.1, {});
  GradScaler scaler({.initial = 1024});
  context_.observers = {&labels_seen};
  Tensor loss;
  {
    const AutocastScope scope(&autocast);
    loss = [&] {
      const Tensor y = call("div", {matmul(random(DType::f32, {2, 3}, 2), w), gain});
      const PhaseGuard phase(Phase::loss);
      return cross_entropy(y, labels({1, 2}));
    }();
  }
  backward(scaler.scale_loss(loss));
  scaler.unscale(*optimizer);
  gradient_norm({&optimizer, 1});
  scaler.step(*optimizer, false);
  context_.observers.clear();
  EXPECT_THAT(labels_seen.seen,
              ElementsAre("forward cast: activation x1", "forward cast: weight_cast of w x1", "forward matmul: activation x1",
                          "forward cast: activation x1", "forward div: activation x1", "loss cross_entropy: loss x1",
                          "loss cross_entropy 1: activation x1", "scaling scale: loss x1024", "backward fill: loss x1024",
                          "backward scale: activation_gradient x1024", "backward cross_entropy_backward: activation_gradient x1024",
                          "backward div: activation_gradient x1024",  // of the quotient's first input
                          "backward mul: activation_gradient x1024", "backward neg: activation_gradient x1024",
                          "backward div: activation_gradient x1024", "backward sum: weight_gradient of gain x1024",
                          "backward cast: activation_gradient x1024",
                          "backward matmul: weight_gradient of w x1024",  // x^T g: g comes second
                          "backward cast: accumulated_gradient of w x1024", "scaling fill: buffer x1",
                          "scaling unscale: unscaled_gradient of w x1", "scaling unscale 1: buffer x1",
                          "scaling unscale: unscaled_gradient of gain x1", "scaling unscale 1: buffer x1",
                          "scaling gradient_norm: buffer x1", "optimizer fill: optimizer_state of w x1",
                          "optimizer fill: optimizer_state of w x1", "optimizer adam_update: master_weight of w x1",
                          "optimizer adam_update 1: optimizer_state of w x1", "optimizer adam_update 2: optimizer_state of w x1",
                          "optimizer adam_update 3: update of w x1", "optimizer fill: optimizer_state of gain x1",
                          "optimizer fill: optimizer_state of gain x1", "optimizer adam_update: master_weight of gain x1",
                          "optimizer adam_update 1: optimizer_state of gain x1",
                          "optimizer adam_update 2: optimizer_state of gain x1", "optimizer adam_update 3: update of gain x1"));
}

TEST_F(DispatchTest, MixedTypesPromoteAndScalarsNeverRaiseTheType) {
  const Tensor half = tensor(DType::f16, {2}, {1, 2}), brain = tensor(DType::bf16, {2}, {1, 2});
  EXPECT_EQ(add(half, tensor(DType::f32, {2}, {1, 2})).dtype(), DType::f32);
  EXPECT_EQ(add(half, brain).dtype(), DType::f32);
  EXPECT_EQ(mul(half, scalar(DType::f32, 3)).dtype(), DType::f16);
  EXPECT_EQ(mul(half, scalar(DType::f64, 3)).dtype(), DType::f16);
  EXPECT_EQ(mul(scalar(DType::f16, 3), scalar(DType::f32, 3)).dtype(), DType::f32);
}

TEST_F(DispatchTest, BroadcastsAsNumPyDoes) {
  const Tensor sum = add(tensor(DType::f32, {2, 1}, {10, 20}), tensor(DType::f32, {3}, {1, 2, 3}));
  EXPECT_THAT(to_host(sum), ElementsAre(11, 12, 13, 21, 22, 23));
}

TEST_F(DispatchTest, ChannelsLastOperandsKeepTheirLayout) {
  const Tensor x = random(DType::f32, {2, 3, 4, 5}, 0, -2, 2, Layout::channels_last);
  const Tensor plain = random(DType::f32, {2, 3, 4, 5});
  const Tensor y = add(x, plain);
  EXPECT_EQ(layout_of(y), Layout::channels_last);
  EXPECT_EQ(to_host(y), to_host(add(plain, plain)));
}

TEST_F(DispatchTest, ErrorsNameOpModuleAndShapes) {
  const ModuleScope module(intern("features.0"));
  const Tensor x = random(DType::f32, {2, 3});
  EXPECT_THAT(usage_error_of([&] { add(x, random(DType::f32, {4})); }),
              ::testing::AllOf(HasSubstr("add in module 'features.0'"), HasSubstr("f32 [2, 3]"), HasSubstr("f32 [4]")));
  EXPECT_THAT(usage_error_of([&] { matmul(x, x); }), HasSubstr("expected a [..., M, K] and b [..., K, N]"));
  EXPECT_THAT(usage_error_of([&] { call("linear", {x}); }), HasSubstr("expected 2 to 3 inputs, got 1"));
  EXPECT_THAT(usage_error_of([&] { call("conv2d", {x, x}, {{"stride_y", 1}}); }), HasSubstr("conv2d"));
  EXPECT_THAT(usage_error_of([&] { call("relo", {x}); }), HasSubstr("did you mean 'relu'"));
  const int64_t four[] = {4}, gaps[] = {2}, shape[] = {4, 2};
  const Tensor spread = make_view(random(DType::f32, {8}), four, gaps);
  EXPECT_THAT(usage_error_of([&] {
                call("accumulate", {spread, random(DType::f32, {4})});
              }),
              HasSubstr("expected no gaps or repeated elements in input 0, which changes in place, got f32 [4] and f32 [4]"));
  EXPECT_THAT(usage_error_of([&] { reshape(x, shape); }), HasSubstr("f32 [2, 3] does not have the elements of [4, 2]"));
}

}  // namespace
}  // namespace ulpscope
