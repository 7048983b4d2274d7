// The arithmetic of a run: how it is read, whose it is, and that runs differ where it does and in nothing else.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/support/counting_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/usage_error.h"
#include "ulpscope/core/engine/function.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

Experiment parsed_arithmetic(const std::string& text, const std::vector<std::string>& assignments = {}) {
  const std::vector<Override> overrides(assignments.begin(), assignments.end());
  return parse_experiment("model.preset = \"mlp\"\n" + text, "run.toml", overrides);
}

TEST(ArithmeticSettings, AreReadFromFilesAndOverridesAndWrittenBack) {
  const Experiment experiment = parsed_arithmetic(R"(
[arithmetic]
accumulate = "a100"
tf32 = false
rounding = "sr"
subnormals = "flush-inputs"
[arithmetic.ops]
linear = { accumulate = "fp16", rounding = "rz" }
[arithmetic.modules]
"2" = { subnormals = "keep" }
)",
                                                  {"arithmetic.ops.linear.rounding=ru", "arithmetic.ops.adam_update.rounding=rne",
                                                   "arithmetic.modules.\"0.*\".accumulate=mi200"});
  const Arithmetic& run = experiment.arithmetic.run;
  EXPECT_EQ(run.accumulation, find_accumulation("a100"));
  EXPECT_FALSE(run.tf32);
  EXPECT_EQ(run.rounding, RoundingMode::stochastic);
  EXPECT_EQ(run.subnormals, Subnormals::flush_inputs);
  const ArithmeticChange& linear = experiment.arithmetic.ops.at("linear");
  EXPECT_EQ(linear.accumulation, find_accumulation("fp16"));
  EXPECT_EQ(linear.rounding, RoundingMode::up);
  EXPECT_FALSE(linear.subnormals || linear.tf32);
  EXPECT_EQ(experiment.arithmetic.ops.at("adam_update").rounding, RoundingMode::nearest_even);
  ASSERT_EQ(experiment.arithmetic.modules.size(), 2u);
  EXPECT_EQ(experiment.arithmetic.modules[1].first, "0.*");
  EXPECT_EQ(parse_experiment(to_toml(experiment), "run.toml"), experiment);
  EXPECT_EQ(
      describe(experiment.arithmetic),
      "accumulate=a100 tf32=false rounding=sr subnormals=flush-inputs ops.adam_update.rounding=rne ops.linear.accumulate=fp16 "
      "ops.linear.rounding=ru modules.2.subnormals=keep modules.0.*.accumulate=mi200");
  EXPECT_EQ(describe({}), "");
  EXPECT_EQ(parsed_arithmetic("").arithmetic, ArithmeticPolicy{});
}

TEST(ArithmeticSettings, MistakesAreNamed) {
  const auto error = [](const std::string& text, const std::vector<std::string>& assignments = {}) {
    return usage_error_of([&] { parsed_arithmetic(text, assignments); });
  };
  EXPECT_EQ(error("[arithmetic]\naccumulate = \"h10\""), "run.toml:3: arithmetic.accumulate: found \"h10\"; did you mean 'h100'?");
  EXPECT_THAT(error("", {"arithmetic.rounding=rnd"}),
              HasSubstr("--set arithmetic.rounding=rnd: arithmetic.rounding: expected rne, rna"));
  EXPECT_THAT(error("", {"arithmetic.subnormals=flush-input"}), EndsWith("did you mean 'flush-inputs'?"));
  EXPECT_THAT(error("[arithmetic]\naccumulator = \"fp16\""),
              EndsWith("unknown key 'arithmetic.accumulator'; did you mean 'arithmetic.accumulate'?"));
  EXPECT_EQ(error("[arithmetic.ops]\nlinear = \"fp16\""),
            "run.toml:3: arithmetic.ops.linear: expected a table like { accumulate = \"fp16\" }, found \"fp16\"");
  EXPECT_THAT(error("[arithmetic.ops]\nlinear = {}"), EndsWith("found an empty one"));
  EXPECT_EQ(error("[arithmetic.ops]\nlinear = { acumulate = \"fp16\" }"),
            "run.toml:3: arithmetic.ops.linear: unknown key 'acumulate'; did you mean 'accumulate'?");
  EXPECT_THAT(error("", {"arithmetic.ops.linear=fp16"}),
              EndsWith("arithmetic.ops.linear is a table: expected one of its keys, like arithmetic.ops.linear.accumulate"));
  const auto run_error = [](const std::vector<std::string>& assignments, const std::string& precision = "fp16") {
    return usage_error_of([&] { Trainer(parsed_arithmetic("precision = \"" + precision + "\"", assignments), {}); });
  };
  EXPECT_THAT(run_error({"arithmetic.ops.linaer.rounding=rz"}), EndsWith("unknown op 'linaer'; did you mean 'linear'?"));
  EXPECT_THAT(
      run_error({"arithmetic.ops.relu.accumulate=fp16"}),
      HasSubstr("'relu' multiplies no matrices, so accumulate and tf32 have no effect on it; expected matmul, linear, conv2d"));
  EXPECT_THAT(run_error({"arithmetic.ops.reshape.rounding=rz"}), EndsWith("'reshape' moves elements and computes nothing"));
  EXPECT_THAT(run_error({"arithmetic.modules.head.rounding=rz"}), HasSubstr("no module of the model matches 'head'"));
  EXPECT_EQ(
      run_error({"arithmetic.rounding=sr"}, "pure_bf16"),
      "run.toml, --set arithmetic.rounding=sr: optimizer.math = \"param\" rounds after every operation, to nearest even, and "
      "keeps subnormals; expected optimizer.math = \"fp32\", which rounds once, or arithmetic.ops.adam_update with rounding = "
      "\"rne\" and subnormals = \"keep\"");
  EXPECT_EQ(run_error({"arithmetic.rounding=sr", "optimizer.math=fp32"}, "pure_bf16"), "no error");
  EXPECT_EQ(run_error({"arithmetic.rounding=sr", "arithmetic.ops.adam_update.rounding=rne"}, "pure_bf16"), "no error");
  EXPECT_EQ(run_error({"arithmetic.rounding=sr"}), "no error");
}

// Notes with which arithmetic each op is called.
class NotingBackend : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  void submit(const OpCall& call) override {
    const std::string_view name = call.arithmetic == nullptr ? "default" : call.arithmetic->accumulation->name;
    seen[std::string(call.op)].insert(std::string(name));
    streams.insert(call.stream);
    ++count;
    CountingBackend::submit(call);
  }
  std::map<std::string, std::set<std::string>> seen;
  std::set<uint64_t> streams;
  size_t count = 0;
};

class ArithmeticTest : public EngineTest {
 protected:
  // A linear layer, ReLU and a product, forward and backward, in modules "first" and "second".
  void run(ArithmeticPolicy policy, uint64_t step = 3, uint32_t micro_batch = 0, uint8_t loss_index = 0) {
    ArithmeticRules rules(std::move(policy));
    context_.arithmetic = &rules;
    context_.backend = &noting_;
    context_.begin_step(step);
    context_.begin_pass(micro_batch, loss_index);
    Tensor x = random(DType::f16, {4, 5}, 1), w = random(DType::f16, {6, 5}, 2), v = random(DType::f16, {6, 3}, 3);
    for (Tensor* leaf : {&x, &w, &v}) leaf->set_requires_grad(true);
    Tensor hidden;
    {
      const ModuleScope module(intern("first"));
      hidden = relu(linear(x, w, {}));
    }
    const ModuleScope module(intern("second"));
    backward(call("sum", {matmul(hidden, v)}, {{"dims", 3}, {"keep", 0}}));
    context_.backend = backend_.get();
    context_.arithmetic = nullptr;
  }
  static ArithmeticChange accumulate(std::string_view name) {
    ArithmeticChange change;
    change.accumulation = find_accumulation(name);
    return change;
  }

  NotingBackend noting_{*backend_};
};

using Names = std::set<std::string>;

TEST_F(ArithmeticTest, OfAnOpServesItsBackward) {
  run({{}, {{"linear", accumulate("fp16")}}, {}});
  EXPECT_EQ(noting_.seen["linear"], Names{"fp16"});
  EXPECT_EQ(noting_.seen["matmul"], (Names{"default", "fp16"}));  // those of linear's backward, and the other product's own
  EXPECT_EQ(noting_.seen["relu"], Names{"default"});
}

TEST_F(ArithmeticTest, OfTheCalledOpComesBeforeThatOfItsForwardOp) {
  run({accumulate("h100").applied_to({}), {{"linear", accumulate("fp16")}, {"matmul", accumulate("exact")}}, {}});
  EXPECT_EQ(noting_.seen["linear"], Names{"fp16"});
  EXPECT_EQ(noting_.seen["matmul"], Names{"exact"});
  EXPECT_EQ(noting_.seen["relu"], Names{"h100"});
}

TEST_F(ArithmeticTest, OfAModuleComesFirst) {
  run({{}, {{"linear", accumulate("fp16")}, {"matmul", accumulate("exact")}}, {{"fir*", accumulate("v100")}}});
  EXPECT_EQ(noting_.seen["linear"], Names{"v100"});
  EXPECT_EQ(noting_.seen["matmul"], (Names{"v100", "exact"}));  // linear's backward, and the product of the other module
}

// No two calls of a run draw the same random bits.
TEST_F(ArithmeticTest, EveryCallHasAStreamOfItsOwn) {
  ArithmeticPolicy policy;
  policy.run.rounding = RoundingMode::stochastic;
  for (const uint64_t step : {3, 4})
    for (const uint32_t micro_batch : {0, 1})
      for (const uint8_t loss_index : {0, 1}) run(policy, step, micro_batch, loss_index);
  EXPECT_EQ(noting_.streams.size(), noting_.count);
}

// Recomputation begins without the cast that an op before the checkpoint made.
TEST_F(ArithmeticTest, ACheckpointCastsASharedWeightAsTheFirstTime) {
  ArithmeticPolicy policy;
  policy.run.rounding = RoundingMode::stochastic;
  ArithmeticRules rules(policy);
  const ContextGuard<&Context::arithmetic> with_rules(&rules);
  std::vector<std::vector<double>> gradients;
  for (const bool checkpointed : {false, true}) {
    context_.begin_step(3);
    Tensor x = random(DType::f32, {16, 16}, 1), weight = random(DType::f32, {16, 16}, 2);
    weight.body()->parameter = intern("shared.weight");
    for (Tensor* leaf : {&x, &weight}) leaf->set_requires_grad(true);
    Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
    Tensor value;
    {
      const AutocastScope scope(&autocast);
      const auto body = [&](std::span<const Tensor> inputs) { return Tensors{call("tanh", {linear(inputs[0], weight, {})})}; };
      const Tensor before = scale(linear(x, weight, {}), 0.01);
      value = checkpointed ? checkpoint(body, {&before, 1})[0] : body({&before, 1})[0];
    }
    backward(call("sum", {value}, {{"dims", 3}, {"keep", 0}}));
    // That of the weight comes through two casts instead of one, in any rounding.
    gradients.push_back(to_host(x.grad()));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// What the kernels know by name agrees with the definitions of the ops.
TEST(ArithmeticOps, ProductsAndMovesAreThoseOfTheDefinitions) {
  const auto product_of = [](const Op& op) { return semantics_of(op.function).product; };
  for (const Op* op : all_ops()) {
    if (product_of(*op) != ProductKind::none) {
      EXPECT_TRUE(is_product(op->name)) << op->name;
    }
    // The gradients of a convolution have ops of their own, which are products too.
    const size_t suffix = op->name.find("_backward_");
    if (suffix != std::string_view::npos && product_of(find_op(op->name.substr(0, suffix))) != ProductKind::none) {
      EXPECT_TRUE(is_product(op->name)) << op->name;
    }
    EXPECT_FALSE(op->is_view && (is_product(op->name) || only_moves(op->name))) << op->name;
  }
  for (const std::string_view name : arithmetic_products()) {
    const std::string_view forward = name.substr(0, name.find("_backward_"));
    EXPECT_NE(product_of(find_op(forward)), ProductKind::none) << name;
    EXPECT_EQ(find_op(name).name, name);
    EXPECT_FALSE(only_moves(name)) << name;
  }
  for (const std::string_view name : moving_ops()) EXPECT_EQ(product_of(find_op(name)), ProductKind::none) << name;
}

Experiment small_product(const std::string& model, const std::vector<std::string>& assignments) {
  std::vector<Override> overrides(assignments.begin(), assignments.end());
  const std::string mlp = R"(
    { type = "linear", out_features = 40 }, { type = "relu" },
    { type = "sequential", checkpoint = CHECKPOINT, layers = [{ type = "linear", out_features = 33 }, { type = "relu" }] },
    { type = "linear", out_features = 10 })";
  const std::string convolutions = R"(
    { type = "conv2d", out_channels = 6, kernel = 3, padding = 1, stride = 2 }, { type = "batch_norm" }, { type = "relu" },
    { type = "conv_transpose2d", out_channels = 4, kernel = 2 }, { type = "flatten" }, { type = "linear", out_features = 10 })";
  std::string layers = model == "convolutions" ? convolutions : mlp;
  if (const size_t at = layers.find("CHECKPOINT"); at != std::string::npos)
    layers.replace(at, 10, model == "checkpointed" ? "true" : "false");
  const std::string shape = model == "convolutions" ? "[3, 8, 8]" : "[32]";
  return parse_experiment(fmt::format(R"(
seed = 3
precision = "fp16"
[data]
kind = "random_classification"
shape = {}
train_size = 256
test_size = 64
[model]
layers = [{}]
[training]
batch_size = 16
steps = 8
)",
                                      shape, layers),
                          "small", overrides);
}

class ArithmeticRuns : public ::testing::Test {
 protected:
  uint64_t weights(const Experiment& experiment, int threads = 2, const std::string& isa = "",
                   RecordLevel level = RecordLevel::off) {
    Experiment settings = experiment;
    settings.recording.level = level;
    TrainerOptions options;
    options.cpu = {.threads = threads, .isa = isa};
    options.trace_path = folder_.file("trace.h5");
    options.overwrite = true;
    return train(settings, options).weights_fingerprint;
  }

  TemporaryFolder folder_;
};

TEST_F(ArithmeticRuns, EachAccumulatorHasItsBitsAndAgreesWithItself) {
  for (const std::string model : {"mlp", "convolutions"}) {
    std::map<uint64_t, std::string> seen;
    for (const std::string name : {"fp32", "fp16", "exact", "v100", "t4", "h100"}) {
      const Experiment experiment = small_product(model, {"arithmetic.accumulate=" + name});
      const uint64_t bits = weights(experiment);
      EXPECT_TRUE(seen.emplace(bits, name).second) << model << ": " << name << " and " << seen[bits];
      EXPECT_EQ(weights(experiment), bits) << model << " " << name;
    }
    // Ampere's and Ada's tensor cores multiply FP16 alike.
    EXPECT_EQ(weights(small_product(model, {"arithmetic.accumulate=a100"})),
              weights(small_product(model, {"arithmetic.accumulate=rtx4090"})));
    EXPECT_EQ(weights(small_product(model, {"arithmetic.rounding=rne", "arithmetic.accumulate=fp32"})),
              weights(small_product(model, {})));
  }
}

// NVIDIA's tensor cores: FP16 from Volta on, BF16 and TF32 from Ampere on, FP8 from Ada and Hopper on.
TEST(ArithmeticOfGpus, WhatTheirTensorCoresLackIsSaid) {
  const auto warning = [](const std::string& precision, const std::string& gpu) {
    return Trainer(parsed_arithmetic("", {"precision=" + precision, "arithmetic.ops.linear.accumulate=" + gpu, "training.steps=1"}),
                   {})
        .warning();
  };
  EXPECT_EQ(warning("bf16", "v100"), "v100 has no tensor cores for bf16: products of it are summed in fp32");
  EXPECT_EQ(warning("fp32", "t4"), "t4 has no tensor cores for tf32: products of it are summed in fp32");
  EXPECT_EQ(warning("fp8", "a100"), "a100 has no tensor cores for e4m3: products of it are summed in fp32");
  for (const char* precision : {"fp16", "bf16", "fp32", "fp8"}) EXPECT_EQ(warning(precision, "h100"), "") << precision;
  EXPECT_EQ(warning("fp16", "v100"), "");
  EXPECT_EQ(warning("fp16", "mi200"), "");
}

TEST_F(ArithmeticRuns, StochasticRoundingDependsOnTheSeedOnly) {
  for (const std::string model : {"mlp", "convolutions"}) {
    for (const std::string precision : {"fp16", "pure_bf16"}) {
      const std::vector<std::string> settings{"arithmetic.rounding=sr", "arithmetic.accumulate=t4", "precision=" + precision,
                                              "optimizer.math=fp32", "arithmetic.subnormals=flush"};
      const Experiment experiment = small_product(model, settings);
      const uint64_t bits = weights(experiment);
      for (const RecordLevel level : {RecordLevel::health, RecordLevel::stats, RecordLevel::full})
        EXPECT_EQ(weights(experiment, 2, "", level), bits) << model << " " << precision << " " << name_of(level);
      Experiment other = experiment;
      other.seed = 4;
      EXPECT_NE(weights(other), bits);
    }
  }
  // FP16 products of tensor cores, and all else that an MLP computes, have one order whatever the threads.
  const Experiment experiment = small_product("mlp", {"arithmetic.rounding=sr", "arithmetic.accumulate=h100"});
  const uint64_t bits = weights(experiment);
  for (const std::string isa : {"sse4", "avx2", ""})
    for (const int threads : {1, 2}) EXPECT_EQ(weights(experiment, threads, isa), bits) << isa << " " << threads;
}

TEST_F(ArithmeticRuns, AResumedRunDrawsTheSameRandomBits) {
  const Experiment experiment =
      small_product("mlp", {"arithmetic.rounding=sr", "precision=pure_bf16", "optimizer.math=fp32", "arithmetic.accumulate=exact"});
  const uint64_t bits = weights(experiment);
  {
    Trainer first(experiment, {});
    while (first.first_step() + 3 > first.context().step) first.step();
    first.save_checkpoint(folder_.file("checkpoint"));
  }
  TrainerOptions options;
  options.resume_from = folder_.file("checkpoint");
  EXPECT_EQ(train(experiment, options).weights_fingerprint, bits);
}

TEST_F(ArithmeticRuns, ACheckpointRoundsAsTheFirstTime) {
  const std::vector<std::string> settings{"arithmetic.rounding=sr", "arithmetic.accumulate=v100"};
  EXPECT_EQ(weights(small_product("checkpointed", settings)), weights(small_product("mlp", settings)));
}

TEST_F(ArithmeticRuns, TracesSayWhatDiffers) {
  weights(small_product("mlp", {"arithmetic.accumulate=mi200", "arithmetic.ops.relu.rounding=rz"}), 2, "", RecordLevel::health);
  EXPECT_EQ(Snapshot(folder_.file("trace.h5")).run().arithmetic, "accumulate=mi200 ops.relu.rounding=rz");
  weights(small_product("mlp", {}), 2, "", RecordLevel::health);
  EXPECT_EQ(Snapshot(folder_.file("trace.h5")).run().arithmetic, "");
}

}  // namespace
}  // namespace ulpscope
