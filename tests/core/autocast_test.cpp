// Autocast against what PyTorch's CUDA autocast does with the same ops.
#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <sstream>

#include "tests/support/engine_fixture.h"
#include "tests/support/name_printer.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/model.h"

namespace ulpscope {
namespace {

class AutocastTest : public EngineTest {
 protected:
  Tensor parameter(std::vector<int64_t> shape, const char* name) {
    Tensor w = random(DType::f32, std::move(shape), 3);
    w.body()->parameter = intern(name);
    w.set_requires_grad(true);
    return w;
  }
  // One batch_norm of 3 channels, in module "bn".
  static std::unique_ptr<Model> batch_norm() {
    const LayerSpec layer(*find_layer_type("batch_norm"), "bn");
    auto model = std::make_unique<Model>(std::span(&layer, 1), SampleShape{3, 2, 2});
    model->create_tensors(0);
    return model;
  }
  static AutocastPolicy policy(DType dtype) { return {.dtype = dtype, .ops = {}, .modules = {}}; }
};

TEST_F(AutocastTest, ListsDecideTheTypeOfEachOp) {
  const Tensor x = random(DType::f32, {4, 4});
  const Tensor half = random(DType::f16, {4, 4}, 1);
  const Attributes conv{{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 0}};
  const Tensor image = random(DType::f32, {1, 4, 1, 1});
  for (const DType lower : {DType::f16, DType::bf16}) {
    Autocast autocast(policy(lower));
    const AutocastScope scope(&autocast);
    EXPECT_EQ(matmul(x, x).dtype(), lower);
    EXPECT_EQ(call("linear", {x, x}).dtype(), lower);
    EXPECT_EQ(call("conv2d", {image, reshape(x, std::vector<int64_t>{4, 4, 1, 1})}, conv).dtype(), lower);
    EXPECT_EQ(mse(half, half).dtype(), DType::f32);
    EXPECT_EQ(cross_entropy(half, labels({0, 1, 2, 3})).dtype(), DType::f32);
    EXPECT_EQ(sum(half).dtype(), DType::f32);
    EXPECT_EQ(relu(half).dtype(), DType::f16);
    EXPECT_EQ(relu(x).dtype(), DType::f32);
    EXPECT_EQ(add(half, x).dtype(), DType::f32);
    EXPECT_EQ(matmul(random(DType::f64, {2, 2}), random(DType::f64, {2, 2})).dtype(), DType::f64);
  }
  EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
}

// Whether outputs say that autocast leaves them wide: by the lists, and by what overrides them.
TEST_F(AutocastTest, OverridesDecideWhatStaysWide) {
  struct Labels : Observer {
    void after(const OpEvent& event) override { stays_wide[std::string(event.op.name)] = event.labels[0].stays_wide; }
    std::map<std::string, bool> stays_wide;
  } labels;
  context_.observers = {&labels};
  const auto run = [&](const AutocastPolicy* policy, std::optional<DType> layer) {
    Tensor w = parameter({4, 4}, "w");
    labels.stays_wide.clear();
    {
      std::optional<Autocast> autocast;
      if (policy != nullptr) autocast.emplace(*policy);
      const AutocastScope scope(autocast ? &*autocast : nullptr);
      const ContextGuard<&Context::layer_type> asked(layer);
      const ContextGuard<&Context::module> module(intern("fc"));
      const Tensor y = call("linear", {random(DType::f32, {4, 4}, 1), w});
      const ContextGuard<&Context::layer_type> none(std::nullopt);
      const ContextGuard<&Context::module> outside(intern(""));
      backward(mean(call("exp", {y})));
    }
    return labels.stays_wide;
  };
  const AutocastPolicy lists = policy(DType::f16);
  AutocastPolicy ops = lists, modules = lists, exp = lists;
  ops.ops = {{"linear", DType::f32}};
  modules.modules = {{"fc", DType::f32}};
  exp.ops = {{"exp", DType::f16}};
  for (const AutocastPolicy* policy : {&lists, static_cast<const AutocastPolicy*>(nullptr)}) {
    auto seen = run(policy, {});
    EXPECT_FALSE(seen["linear"]);
    EXPECT_FALSE(seen["matmul"]) << "the gradient of the weight";
    EXPECT_TRUE(seen["exp"]);
    seen = run(policy, DType::f32);
    EXPECT_TRUE(seen["linear"]);
    EXPECT_TRUE(seen["matmul"]);
  }
  for (const AutocastPolicy* policy : {&ops, &modules}) {
    auto seen = run(policy, {});
    EXPECT_TRUE(seen["linear"]);
    EXPECT_TRUE(seen["matmul"]);
  }
  EXPECT_FALSE(run(&exp, {})["exp"]);
}

TEST_F(AutocastTest, IsOffInBackwardWhichUsesTheTypesOfForward) {
  Tensor w = parameter({4, 4}, "w");
  Tensor x = random(DType::f32, {4, 4}, 1);
  x.set_requires_grad(true);
  Autocast autocast(policy(DType::f16));
  std::ostringstream names;
  NamePrinter printer(names);
  const AutocastScope scope(&autocast);
  const Tensor loss = sum(matmul(x, w));
  context_.observers.push_back(&printer);
  backward(loss);
  // FP32 sum's gradient, back through its input's cast to FP16, two FP16 products, and both inputs' casts back to FP32.
  EXPECT_EQ(names.str(), "fill\ncopy\ncast\nmatmul\nmatmul\ncast\ncast\n");
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

TEST_F(AutocastTest, AParameterIsCastOncePerForwardPassAndItsGradientsMeetInSixteenBits) {
  Tensor w = parameter({4, 4}, "w");
  const Tensor x = random(DType::f32, {4, 4}, 1);
  Autocast autocast(policy(DType::f16));
  std::ostringstream names;
  NamePrinter printer(names);
  Tensor loss;
  {
    const AutocastScope scope(&autocast);
    context_.observers.push_back(&printer);
    loss = sum(add(matmul(x, w), matmul(x, w)));
  }
  EXPECT_EQ(names.str(), "cast\ncast\nmatmul\ncast\nmatmul\nadd\ncast\nsum\n");  // x twice, w once, the FP32 sum's input
  names.str("");
  backward(loss);
  EXPECT_THAT(names.str(), ::testing::HasSubstr("add\ncast\n"));
  {
    const AutocastScope scope(&autocast);
    names.str("");
    matmul(x, w);
    EXPECT_EQ(names.str(), "cast\ncast\nmatmul\n") << "the cache ends with the scope";
  }
}

TEST_F(AutocastTest, ACastMadeWithoutGradientsIsNotTakenForOneThatNeedsThem) {
  Tensor w = parameter({4, 4}, "w");
  const Tensor x = random(DType::f32, {4, 4}, 1);
  Autocast autocast(policy(DType::f16));
  const AutocastScope scope(&autocast);
  {
    const NoGrad no_grad;
    matmul(x, w);
  }
  backward(sum(matmul(x, w)));
  EXPECT_TRUE(w.grad());
}

TEST_F(AutocastTest, AWeightUsedTwiceMeetsItsGradientsInTheSameOpInEveryPrecision) {
  std::string ops[2];
  for (int lower = 0; lower < 2; ++lower) {
    Tensor w = parameter({4, 4}, "w");
    const Tensor x = random(DType::f32, {4, 4}, 1);
    Autocast autocast(policy(DType::f16));
    const AutocastScope scope(lower ? &autocast : nullptr);
    const Tensor loss = sum(add(matmul(x, w), matmul(x, w)));
    std::ostringstream names;
    NamePrinter printer(names);
    context_.observers = {&printer};
    backward(loss);
    context_.observers.clear();
    std::istringstream all(names.str());
    for (std::string name; std::getline(all, name);)
      if (name != "cast") ops[lower] += name + " ";
  }
  EXPECT_EQ(ops[0], ops[1]);
}

TEST_F(AutocastTest, AnUpdateOfTheParameterEndsItsCachedCast) {
  Tensor w = parameter({4, 4}, "w");
  Autocast autocast(policy(DType::f16));
  const AutocastScope scope(&autocast);
  const NoGrad no_grad;
  const Tensor before = matmul(w, w);
  call("accumulate", {w, w});
  EXPECT_NE(to_host(matmul(w, w)), to_host(before));
}

TEST_F(AutocastTest, OverridesByOpAndByModuleReplaceTheLists) {
  const Tensor x = random(DType::f32, {4, 4});
  AutocastPolicy overridden = policy(DType::f16);
  overridden.ops.emplace("relu", DType::f16);
  overridden.modules.emplace_back("head*", DType::f32);
  Autocast autocast(overridden);
  const AutocastScope scope(&autocast);
  EXPECT_EQ(relu(x).dtype(), DType::f16);
  EXPECT_EQ(matmul(x, x).dtype(), DType::f16);
  {
    const ModuleScope module(intern("head.0"));
    EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
    EXPECT_EQ(relu(x).dtype(), DType::f32);
  }
  AutocastPolicy unknown = policy(DType::f16);
  unknown.ops.emplace("relo", DType::f32);
  EXPECT_THROW(Autocast{unknown}, Error);
  for (const char* op : {"adam_update", "relu_backward", "conv2d_backward_input", "reshape", "fill"}) {
    AutocastPolicy untouchable = policy(DType::f16);
    untouchable.ops.emplace(op, DType::f32);
    EXPECT_THROW(Autocast{untouchable}, Error) << "an override of " << op << " has no effect";
  }
  EXPECT_THROW(Autocast(policy(DType::f32)), Error);
}

TEST_F(AutocastTest, AForbiddenOpIsAnErrorThatSaysWhatToUse) {
  Op op = find_op("sigmoid");
  op.autocast = AutocastClass::forbidden;
  op.forbidden_because = "half a reason; expected another op";
  const Tensor x = random(DType::f32, {3});
  EXPECT_EQ(dispatch(op, {&x, 1})[0].dtype(), DType::f32) << "autocast is off";
  const auto message = [&](AutocastPolicy with) -> std::string {
    Autocast autocast(std::move(with));
    const AutocastScope scope(&autocast);
    const ModuleScope module(intern("head"));
    try {
      return std::string(info(dispatch(op, {&x, 1})[0].dtype()).name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
  };
  EXPECT_EQ(message(policy(DType::f16)),
            "sigmoid in module 'head': forbidden under autocast, because half a reason; expected another op");
  AutocastPolicy allowed = policy(DType::f16);
  allowed.modules.emplace_back("head", DType::f32);
  EXPECT_EQ(message(allowed), "f32");
}

TEST_F(AutocastTest, LossesAreKnownAsSuch) {
  for (const Op& op : loss_ops()) {
    if (op.backward == nullptr) continue;
    EXPECT_TRUE(op.autocast == AutocastClass::loss || op.autocast == AutocastClass::forbidden) << op.name;
  }
}

TEST_F(AutocastTest, BatchNormKeepsItsParametersAndStatisticsInFP32) {
  const auto model = batch_norm();
  Autocast autocast(policy(DType::f16));
  const AutocastScope scope(&autocast);
  const Tensor y = (*model)(random(DType::f16, {4, 3, 2, 2}), true);
  EXPECT_EQ(y.dtype(), DType::f16);
  backward(sum(y));
  for (const NamedTensor& p : model->parameters()) EXPECT_EQ(p.tensor.grad().dtype(), DType::f32);
}

// As inside custom_fwd(cast_inputs=...): the input is cast, on the way back its gradient; parameters and statistics stay FP32.
TEST_F(AutocastTest, AnOverrideOfBatchNormCastsItsInputAlone) {
  for (const auto& [given, chosen] : {std::pair{DType::f16, DType::f32}, {DType::f32, DType::f16}, {DType::f32, DType::bf16}}) {
    for (const bool by_module : {false, true}) {
      const auto model = batch_norm();
      AutocastPolicy overridden = policy(DType::f16);
      if (by_module) {
        overridden.modules.emplace_back("bn", chosen);
      } else {
        overridden.ops.emplace("batch_norm", chosen);
      }
      Autocast autocast(overridden);
      const AutocastScope scope(&autocast);
      Tensor x = random(given, {4, 3, 2, 2});
      x.set_requires_grad(true);
      const Tensor y = (*model)(x, true);
      EXPECT_EQ(y.dtype(), chosen);
      EXPECT_EQ(to_host(y), to_host((*batch_norm())(cast(x, chosen), true)));
      backward(sum(y));
      EXPECT_EQ(x.grad().dtype(), given);
      for (const NamedTensor& p : model->parameters()) EXPECT_EQ(p.tensor.grad().dtype(), DType::f32);
      for (const NamedTensor& buffer : model->buffers()) EXPECT_EQ(buffer.tensor.dtype(), DType::f32);
    }
  }
}

}  // namespace
}  // namespace ulpscope
