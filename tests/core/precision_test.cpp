// Policies of mixed precision: what each casts, keeps and scales, against what the documentation of its library says.
#include "ulpscope/core/run/precision.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tests/support/engine_fixture.h"
#include "tests/support/project_files.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

class PrecisionTest : public EngineTest {
 protected:
  static AutocastPolicy policy(Precision precision) {
    return {.dtype = dtype_of(precision), .lists = row_of(precision).lists, .ops = {}, .modules = {}};
  }
  // The types of the outputs of `compute` under the policy.
  std::string types(Precision precision, const std::function<Tensors()>& compute) {
    Autocast autocast(policy(precision));
    const AutocastScope scope(&autocast);
    const NoGrad no_grad;
    std::string text;
    for (const Tensor& tensor : compute()) text += fmt::format("{}{}", text.empty() ? "" : " ", info(tensor.dtype()).name);
    return text;
  }
};

TEST(PrecisionTable, RowsAreInTheOrderOfTheEnum) {
  EXPECT_EQ(precision_rows().size(), static_cast<size_t>(Precision::fp8) + 1);
  EXPECT_STREQ(name_of(Precision::apex_o2), "apex_o2");
  EXPECT_STREQ(name_of(Precision::pure_bf16), "pure_bf16");
  EXPECT_STREQ(name_of(Precision::fp8), "fp8");
  EXPECT_EQ(dtype_of(Precision::mixed_bfloat16), DType::bf16);
}

// A row that says what its op's class says already, or names no op, is a mistake.
TEST(PrecisionTable, ListsNameOpsThatTheyTreatOtherwise) {
  for (const PrecisionRow& row : precision_rows()) {
    if (row.lists == nullptr) continue;
    for (const AutocastLists::Row& listed : row.lists->ops)
      EXPECT_NE(row.lists->of_class(find_op(listed.op).autocast), listed.autocast) << row.name << " " << listed.op;
  }
}

TEST(ExperimentReference, PoliciesAreGeneratedFromTheTable) {
  const std::string path = project_file("docs/policies.md");
  if (std::getenv("ULPSCOPE_UPDATE_DOCS") != nullptr) std::ofstream(path, std::ios::binary) << policy_reference();
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, policy_reference()) << "run this test with ULPSCOPE_UPDATE_DOCS=1";
}

// FP32 and FP16 come in to each op. The policies that cast the model leave ops alone.
TEST_F(PrecisionTest, ListsDecideTheTypeOfEachOp) {
  const Tensor wide = random(DType::f32, {4, 4}), half = random(DType::f16, {4, 4}, 1, 0.5, 2);
  const Tensor ones = tensor(DType::f32, {4}, {1, 1, 1, 1}), zeros = tensor(DType::f32, {4}, {0, 0, 0, 0});
  const auto unary = [&](const char* op, const Attributes& attributes = {}) {
    return [&wide, &half, op, attributes] { return Tensors{call(op, {wide}, attributes), call(op, {half}, attributes)}; };
  };
  const std::string own = "f32 f16", lower = "f16 f16", full = "f32 f32";
  using P = Precision;
  const Attributes all{{"dims", 3}, {"keep", 0}};
  struct Row {
    const char* what;
    std::function<Tensors()> compute;
    std::map<P, std::string> expected;  // that of fp16 where a policy is not named
  };
  const std::vector<Row> rows{
      {"linear",
       [&] {
         return Tensors{call("linear", {wide, wide}), call("linear", {half, wide})};
       },
       {{P::fp16, lower}, {P::pure_fp16, full}}},  // the FP32 weight is the widest
      {"matmul",
       [&] {
         return Tensors{matmul(wide, wide), matmul(half, half)};
       },
       {{P::fp16, lower}, {P::mxnet, own}, {P::pure_fp16, own}}},
      {"relu", unary("relu"), {{P::fp16, own}, {P::mixed_float16, lower}}},
      {"sigmoid", unary("sigmoid"), {{P::fp16, own}, {P::mixed_float16, lower}}},
      {"softmax", unary("softmax"), {{P::fp16, full}, {P::mixed_float16, lower}, {P::tf_auto_mixed, own}, {P::pure_fp16, own}}},
      {"log", unary("log"), {{P::fp16, full}, {P::mixed_float16, lower}, {P::tf_auto_mixed, own}, {P::pure_fp16, own}}},
      {"exp", unary("exp"), {{P::fp16, full}, {P::mixed_float16, lower}, {P::pure_fp16, own}}},
      {"logsumexp", unary("logsumexp"), {{P::fp16, full}, {P::mixed_float16, lower}, {P::apex_o1, own}, {P::pure_fp16, own}}},
      {"sum", unary("sum", all), {{P::fp16, full}, {P::mixed_float16, lower}, {P::pure_fp16, own}}},
      {"mean",
       unary("mean", all),
       {{P::fp16, own}, {P::mixed_float16, lower}, {P::tf_auto_mixed, full}, {P::mxnet, full}, {P::pure_fp16, own}}},
      {"add",
       [&] {
         return Tensors{add(wide, wide), add(half, half), add(half, wide)};
       },
       {{P::fp16, "f32 f16 f32"}, {P::mixed_float16, "f16 f16 f16"}, {P::tf_auto_mixed, "f32 f16 f16"}}},
      {"layer_norm",
       [&] {
         const Attributes eps{{"eps", 1e-5}};
         return Tensors{call("layer_norm", {wide, ones, zeros}, eps), call("layer_norm", {half, ones, zeros}, eps)};
       },
       {{P::fp16, full}, {P::pure_fp16, full}}},  // FP32 parameters are the widest
      {"mse",
       [&] {
         return Tensors{mse(wide, wide), mse(half, half)};
       },
       {{P::fp16, full}}},
  };
  for (const Row& row : rows) {
    for (const P precision :
         {P::fp16, P::mixed_float16, P::apex_o1, P::tf_auto_mixed, P::mxnet, P::pure_fp16, P::apex_o2, P::apex_o3}) {
      const P listed = precision == P::apex_o2 || precision == P::apex_o3 ? P::pure_fp16 : precision;
      const auto found = row.expected.find(listed);
      EXPECT_EQ(types(precision, row.compute), found == row.expected.end() ? row.expected.at(P::fp16) : found->second)
          << row.what << " " << name_of(precision);
    }
  }
}

// TensorFlow: in exp -> add the add is unsafe because of the exp, through anything that is inferred; a product starts anew.
TEST_F(PrecisionTest, WhatComesFromTheDenyListStaysInFP32) {
  const Tensor x = random(DType::f32, {4, 4});
  EXPECT_EQ(types(Precision::tf_auto_mixed,
                  [&] {
                    const Tensor product = matmul(x, x), denied = call("exp", {product}),
                                 shaped = relu(reshape(denied, std::vector<int64_t>{2, 8}));
                    const Tensor back = reshape(shaped, std::vector<int64_t>{4, 4});
                    return Tensors{add(product, x), denied, shaped, add(back, product), softmax(back), relu(matmul(back, back))};
                  }),
            "f16 f32 f32 f32 f32 f16");
}

TEST_F(PrecisionTest, KerasComputesSoftmaxInFP16UnlessALayerSaysFP32) {
  const Tensor x = tensor(DType::f16, {1, 3}, {4, 0, -8});
  Autocast keras(policy(Precision::mixed_float16)), torch(policy(Precision::fp16));
  const auto under = [&](Autocast& autocast) {
    const AutocastScope scope(&autocast);
    return softmax(x);
  };
  const double total = std::exp(4.0) + 1 + std::exp(-8.0);
  const std::vector<double> exact{std::exp(4.0) / total, 1 / total, std::exp(-8.0) / total};
  const auto rounded = to_host(under(keras)), wide = to_host(under(torch));
  EXPECT_EQ(rounded, to_host(tensor(DType::f16, {1, 3}, exact)));
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(std::abs(wide[i] - exact[i]), 8 * 0x1p-24 * exact[i]);
  EXPECT_NE(rounded, wide);
  const ContextGuard<&Context::layer_type> layer(DType::f32);
  EXPECT_EQ(to_host(under(keras)), wide);
}

// Keras casts a variable where it is read, PyTorch once under autocast, whose gradients of two uses meet in FP16: 1 + 2^-12 is 1
// there.
TEST_F(PrecisionTest, GradientsOfTheUsesOfAWeightAddUpInTheTypeThatTheLibraryHasThemIn) {
  const auto gradient = [&](Precision precision) {
    Autocast autocast(policy(precision));
    const AutocastScope scope(&autocast);
    Tensor weight = tensor(DType::f32, {1, 1}, {1});
    weight.set_requires_grad(true);
    weight.body()->parameter = intern("weight");
    const Tensor one = tensor(DType::f16, {1, 1}, {1}), small = tensor(DType::f16, {1, 1}, {0x1p-12});
    backward(sum(add(call("linear", {one, weight}), call("linear", {small, weight}))));
    return to_host(weight.grad())[0];
  };
  EXPECT_EQ(gradient(Precision::mixed_float16), 1 + 0x1p-12);
  EXPECT_EQ(gradient(Precision::fp16), 1);
}

TEST_F(PrecisionTest, ALayersTypeHoldsForTheLayersWithinIt) {
  const Experiment experiment = parse_experiment(R"(
    model.layers = [
      { type = "linear", out_features = 4 },
      { type = "sequential", dtype = "fp32", layers = [{ type = "linear", out_features = 4 }, { type = "relu", dtype = "bf16" }] },
      { type = "linear", out_features = 2 },
    ])",
                                                 "layers.toml");
  EXPECT_EQ(parse_experiment(to_toml(experiment), "layers.toml").model, experiment.model);
  Model model(experiment.model.layers, {4});
  model.create_tensors(0);
  struct Types : Observer {
    void before(const OpEvent&, std::span<OutputRecord* const>) override {}
    void after(const OpEvent& event) override {
      if (event.op.name != "cast") text += fmt::format("{} {}\n", event.op.name, info(event.outputs[0].dtype()).name);
    }
    std::string text;
  } types;
  context_.observers = {&types};
  const auto run = [&](AutocastPolicy with) {
    Autocast autocast(std::move(with));
    const AutocastScope scope(&autocast);
    types.text.clear();
    model(random(DType::f32, {3, 4}), true);
    return types.text;
  };
  EXPECT_EQ(run(policy(Precision::fp16)), "linear f16\nlinear f32\nrelu bf16\nlinear f16\n");
  AutocastPolicy patterns = policy(Precision::fp16);
  patterns.modules.emplace_back("1.*", DType::f16);
  EXPECT_EQ(run(patterns), "linear f16\nlinear f16\nrelu f16\nlinear f16\n");
}

// What a checkpointed block computes again has the type that its layer asked for.
TEST(PrecisionRun, ALayersTypeHoldsWhereItIsComputedAgain) {
  const auto fingerprint = [](const char* checkpoint) {
    const Experiment experiment = parse_experiment(fmt::format(R"(
      precision = "fp16"
      model.layers = [
        {{ type = "linear", out_features = 16 }},
        {{ type = "sequential", dtype = "fp32", checkpoint = {}, layers = [{{ type = "linear", out_features = 16 }}, {{ type = "gelu" }}] }},
        {{ type = "linear", out_features = 2 }},
      ]
      data = {{ shape = [8], classes = 2, train_size = 32 }}
      training = {{ batch_size = 8, steps = 3, evaluation = "never" }}
      )",
                                                               checkpoint),
                                                   "run.toml");
    TrainerOptions options;
    options.cpu.threads = 1;
    return train(experiment, options).weights_fingerprint;
  };
  EXPECT_EQ(fingerprint("true"), fingerprint("false"));
}

// What a run of each policy has in which type, from its recording.
TEST(PrecisionRun, ParametersGradientsOutputsAndLossHaveTheTypesOfThePolicy) {
  const TemporaryFolder folder;
  // Parameters, master weights, gradients of parameters as computed, what is updated, batch_norm's statistics, the output of the
  // last layer, what the loss takes, the loss, whether there is a scaler.
  const std::map<std::string, std::string> expected{
      {"fp32", "f32 f32 f32 f32 f32 f32 f32 f32 no"},
      {"fp16", "f32 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"bf16", "f32 f32 bf16 f32 f32 bf16 f32 f32 no"},
      {"mixed_float16", "f32 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"mixed_bfloat16", "f32 f32 bf16 f32 f32 bf16 f32 f32 no"},
      {"apex_o0", "f32 f32 f32 f32 f32 f32 f32 f32 no"},
      {"apex_o1", "f32 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"apex_o2", "f16 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"apex_o3", "f16 none f16 f16 f16 f16 f32 f32 no"},
      {"tf_auto_mixed", "f32 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"mxnet", "f32 f32 f16 f32 f32 f16 f32 f32 yes"},
      {"pure_fp16", "f16 none f16 f16 f16 f16 f16 f16 no"},
      {"pure_bf16", "bf16 none bf16 bf16 bf16 bf16 bf16 bf16 no"},
      {"fp64", "f64 f64 f64 f64 f64 f64 f64 f64 no"},
      {"fp8", "f32 f32 bf16 f32 f32 bf16 f32 f32 no"},
  };
  for (const PrecisionRow& row : precision_rows()) {
    Experiment experiment = parse_experiment(R"(
      model.layers = [
        { type = "conv2d", name = "conv", out_channels = 4, kernel = 3 },
        { type = "batch_norm", name = "norm" },
        { type = "flatten" },
        { type = "linear", name = "head", out_features = 2 },
      ]
      data = { shape = [1, 6, 6], classes = 2, train_size = 16 }
      training = { batch_size = 8, steps = 2, evaluation = "never" }
      scaler.initial = 4
      optimizer.type = "sgd"
      )",
                                             "run.toml", std::vector<Override>{std::string("precision=") + row.name});
    TrainerOptions options;
    options.cpu.threads = 1;
    options.trace_path = folder.file(std::string(row.name) + ".h5");
    const TrainResult result = train(experiment, options);
    EXPECT_EQ(result.skipped_steps, 0u) << row.name;
    EXPECT_TRUE(std::isfinite(result.final_loss)) << row.name;
    const Snapshot reader(options.trace_path);
    std::map<std::string, std::string> seen;
    const auto see = [&](const char* what, const TensorInfo& tensor) { seen[what] = info(tensor.dtype).name; };
    for (const TensorInfo& tensor : reader.tensors()) {
      const OpInfo& op = reader.ops()[tensor.op];
      const bool of_head = op.module == "head";
      if (of_head && (op.name == "linear" || op.name == "scaled_matmul") && op.phase == Phase::forward) see("output", tensor);
      if (of_head && tensor.role == Role::weight && op.name == "source") see("parameter", tensor);
      if (of_head && tensor.role == Role::master_weight && op.name == "source") see("master", tensor);
      if (of_head && tensor.role == Role::weight_gradient && op.name != "cast") see("gradient", tensor);
      if (of_head && op.name == "sgd_update" && tensor.role != Role::update) see("updated", tensor);
      if (op.module == "norm" && tensor.role == Role::buffer && op.name == "source") see("statistics", tensor);
      if (op.phase == Phase::loss && tensor.role == Role::loss) see("loss", tensor);
      if (op.name == "cross_entropy_backward") see("loss takes", tensor);
    }
    const auto type = [&](const char* what) { return seen.contains(what) ? seen[what] : "none"; };
    const std::string found =
        fmt::format("{} {} {} {} {} {} {} {} {}", seen.contains("parameter") ? type("parameter") : type("master"), type("master"),
                    type("gradient"), type("updated"), type("statistics"), type("output"), type("loss takes"), type("loss"),
                    reader.run().growth_interval > 0 ? "yes" : "no");
    EXPECT_EQ(found, expected.at(row.name)) << row.name;
    // What every rounding lost is known, also of parameters and updates of 16 bits.
    reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& tensor_row : rows) {
        const TensorInfo& tensor = reader.tensors()[tensor_row.tensor];
        const bool narrow = is_narrow(*info(tensor.dtype).format);
        EXPECT_EQ(tensor_row.rounding_known, narrow) << row.name << " " << reader.ops()[tensor.op].name;
      }
      return true;
    });
  }
}

TEST(PrecisionRun, AnOptimizerWithoutParametersIsAnError) {
  const auto message = [](const char* modules) -> std::string {
    try {
      Trainer(parse_experiment(
                  fmt::format("model.preset = \"mlp\"\n[[optimizers]]\nmodules = [\"0\"]\n[[optimizers]]\nmodules = {}", modules),
                  "run.toml"),
              {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("[\"2\", \"4\"]"), "");
  for (const char* modules : {"[\"1\"]", "[\"0\"]", "[\"nothing*\"]"}) {
    EXPECT_EQ(message(modules),
              "run.toml:4: optimizers[1]: no module with parameters, that no optimizer before it has, matches its patterns");
  }
}

// Apex O2: after every step the model's weights are the master weights, rounded; batch_norm's are FP32 themselves.
TEST(PrecisionRun, CopiesOfMasterWeightsAreTheirRounding) {
  const Experiment experiment = parse_experiment(R"(
    precision = "apex_o2"
    model.layers = [{ type = "linear", out_features = 16 }, { type = "batch_norm" }, { type = "linear", out_features = 2 }]
    data = { shape = [8], classes = 2, train_size = 32 }
    training = { batch_size = 8, steps = 3, evaluation = "never" }
    )",
                                                 "run.toml");
  const TemporaryFolder folder;
  TrainerOptions options;
  options.cpu.threads = 1;
  Trainer trainer(experiment, options);
  while (!trainer.finished()) trainer.step();
  trainer.save_checkpoint(folder.file("o2"));
  std::vector<std::vector<double>> weights;
  for (const NamedTensor& parameter : trainer.model().parameters()) {
    EXPECT_EQ(parameter.tensor.dtype(), *parameter.module == "1" ? DType::f32 : DType::f16) << *parameter.name;
    weights.push_back(to_host(parameter.tensor));
  }
  trainer.finish();
  // The file has the master weights, from which an FP32 run goes on.
  Experiment wide = experiment;
  wide.precision = Precision::fp32;
  wide.training.steps = 4;
  options.resume_from = folder.file("o2");
  Trainer resumed(wide, options);
  const ContextScope current(resumed.context());
  const std::vector<NamedTensor> masters = resumed.model().parameters();
  bool differs = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    const DType dtype = *masters[i].module == "1" ? DType::f32 : DType::f16;
    const std::vector<double> values = to_host(masters[i].tensor);
    const Tensor rounded = from_host(*resumed.context().backend, dtype, masters[i].tensor.shape(), values);
    EXPECT_EQ(to_host(rounded), weights[i]) << *masters[i].name;
    differs = differs || values != weights[i];
  }
  EXPECT_TRUE(differs) << "master weights should hold more than their copies";
}

}  // namespace
}  // namespace ulpscope
