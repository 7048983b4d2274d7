// The one door: what passes it, what it promotes and broadcasts, and the errors it gives.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/support/counting_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/name_printer.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/optim/grad_scaler.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DispatchTest : public EngineTest {};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

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

TEST_F(DispatchTest, AnObserverSeesOpsInTheOrderOfExecution) {
  std::ostringstream names;
  NamePrinter printer(names);
  context_.observers.push_back(&printer);
  relu(add(scalar(DType::f32, 1), scalar(DType::f32, 2)));
  EXPECT_EQ(names.str(), "add\nrelu\n");
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
  EXPECT_THAT(error_of([&] { add(x, random(DType::f32, {4})); }),
              ::testing::AllOf(HasSubstr("add in module 'features.0'"), HasSubstr("f32 [2, 3]"), HasSubstr("f32 [4]")));
  EXPECT_THAT(error_of([&] { matmul(x, x); }), HasSubstr("expected a [..., M, K] and b [..., K, N]"));
  EXPECT_THAT(error_of([&] { call("linear", {x}); }), HasSubstr("expected 2 to 3 inputs, got 1"));
  EXPECT_THAT(error_of([&] { call("conv2d", {x, x}, {{"stride_y", 1}}); }), HasSubstr("conv2d"));
  EXPECT_THAT(error_of([&] { call("relo", {x}); }), HasSubstr("did you mean 'relu'"));
  const int64_t shape[] = {4, 2};
  EXPECT_THAT(error_of([&] { reshape(x, shape); }), HasSubstr("f32 [2, 3] does not have the elements of [4, 2]"));
}

}  // namespace
}  // namespace ulpscope
