// The tape: accumulation, detaching, switching off, and in-place changes that it must notice.
#include <gmock/gmock.h>

#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AutogradTest : public EngineTest {
 protected:
  Tensor leaf(const std::vector<double>& values) {
    Tensor x = tensor(DType::f32, {static_cast<int64_t>(values.size())}, values);
    x.set_requires_grad(true);
    return x;
  }
};

TEST_F(AutogradTest, GradientsAccumulateOverBackwards) {
  Tensor x = leaf({1, 2});
  backward(sum(mul(x, x)));
  backward(sum(mul(x, x)));
  EXPECT_THAT(to_host(x.grad()), ElementsAre(4, 8));
}

// 2^24 + 1 rounds to 2^24, so the order of the additions shows. PyTorch's is the same.
TEST_F(AutogradTest, GradientsOfOneBackwardAreAddedBeforeTheyAreAccumulated) {
  Tensor x = leaf({1, 1});
  x.set_grad(tensor(DType::f32, {2}, {0x1p24, 0x1p24}));
  const Tensor factor = tensor(DType::f32, {2}, {1, 1});
  backward(add(sum(mul(x, factor)), sum(mul(x, factor))));
  EXPECT_THAT(to_host(x.grad()), ElementsAre(0x1p24 + 2, 0x1p24 + 2));
}

TEST_F(AutogradTest, AnOpWithoutGradientDoesNotDropOne) {
  Tensor x = leaf({1, 2});
  try {
    call("relu_backward", {x, x});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("relu_backward"));
    EXPECT_THAT(error.what(), HasSubstr("requires a gradient"));
  }
  EXPECT_NO_THROW(call("relu_backward", {x.detach(), x.detach()}));
  const NoGrad no_grad;
  EXPECT_NO_THROW(call("relu_backward", {x, x}));
}

TEST_F(AutogradTest, GradientsThatMeetAreAdded) {
  Tensor x = leaf({3, 5});
  const Tensor y = scale(x, 2);
  backward(sum(add(mul(y, y), y)));  // d/dx (4 x^2 + 2 x) = 8 x + 2
  EXPECT_THAT(to_host(x.grad()), ElementsAre(26, 42));
}

TEST_F(AutogradTest, AnInputUsedTwiceByOneOpGetsBothGradients) {
  Tensor x = leaf({3, -4});
  backward(sum(mul(x, x)));
  EXPECT_THAT(to_host(x.grad()), ElementsAre(6, -8));
}

TEST_F(AutogradTest, LeavesDoNotShareTheirGradientsElements) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  backward(sum(add(a, b)));
  EXPECT_NE(a.grad().storage().serial(), b.grad().storage().serial());
}

TEST_F(AutogradTest, NothingIsComputedForInputsThatNeedNoGradient) {
  Tensor x = leaf({1, 2});
  const Tensor constant = tensor(DType::f32, {2}, {5, 7});
  backward(sum(mul(x, constant)));
  EXPECT_THAT(to_host(x.grad()), ElementsAre(5, 7));
  EXPECT_FALSE(constant.grad());
}

TEST_F(AutogradTest, DetachAndNoGradLeaveTheTape) {
  Tensor x = leaf({1, 2});
  EXPECT_FALSE(mul(x, x).detach().requires_grad());
  {
    const NoGrad no_grad;
    EXPECT_FALSE(mul(x, x).requires_grad());
  }
  EXPECT_TRUE(mul(x, x).requires_grad());
  backward(sum(mul(x, scale(x, 3).detach())));
  EXPECT_THAT(to_host(x.grad()), ElementsAre(3, 6));
}

TEST_F(AutogradTest, AValueChangedInPlaceSinceTheForwardPassIsAnError) {
  Tensor x = leaf({1, 2});
  const Tensor factor = tensor(DType::f32, {2}, {5, 7});
  const Tensor y = sum(mul(x, factor));
  call("accumulate", {factor, tensor(DType::f32, {2}, {1, 1})});
  try {
    backward(y);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("mul"));
    EXPECT_THAT(error.what(), HasSubstr("changed in place"));
  }
}

TEST_F(AutogradTest, BackwardNeedsAScalarThatRequiresAGradient) {
  Tensor x = leaf({1, 2});
  EXPECT_THROW(backward(x), Error);
  EXPECT_THROW(backward(scalar(DType::f32, 1)), Error);
}

TEST_F(AutogradTest, ASecondBackwardThroughAReleasedGraphIsAnError) {
  Tensor x = leaf({1, 2});
  const Tensor y = sum(mul(x, x));
  backward(y);
  EXPECT_THROW(backward(y), Error);
}

TEST_F(AutogradTest, TheGraphKeepsNoMemoryAfterBackward) {
  Tensor x = leaf(std::vector<double>(1000, 1.0));
  const size_t before = backend_->allocated_bytes();
  backward(sum(mul(scale(x, 2), x)));
  x.set_grad(Tensor());
  EXPECT_EQ(backend_->allocated_bytes(), before);
}

}  // namespace
}  // namespace ulpscope
