// How far apart outputs are, of ops that two contexts run in turn.
#include "ulpscope/studies/op_differences.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/support/engine_fixture.h"

namespace ulpscope {
namespace {

class OpDifferencesTest : public EngineTest {
 protected:
  // Of negated values: the negation is exact, so that outputs are as far apart as these.
  std::vector<OpDifference> compared(const Tensor& original, const Tensor& changed) {
    OpDifferences differences;
    differences.begin_step(0);
    for (const auto& [observer, input] :
         {std::pair(&differences.original(), original), std::pair(&differences.changed(), changed)}) {
      context_.observers = {observer};
      context_.begin_step(0);
      call("neg", {input});
    }
    context_.observers.clear();
    return differences.found();
  }
};

// Of magnitudes whose squares FP64 cannot hold, at either end.
TEST_F(OpDifferencesTest, AnyMagnitudeHasADifference) {
  for (const int exponent : {0, 511, 700, 1020, -700, -1074}) {
    const double scale = std::ldexp(1, exponent);  // times 3 and 4, exact
    const auto found = compared(tensor(DType::f64, {2}, {4 * scale, 0}), tensor(DType::f64, {2}, {4 * scale, 3 * scale}));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].largest, 3.0 / 5) << exponent;
    EXPECT_EQ(found[0].nonfinite_in_one, 0u);
  }
  constexpr double kLargest = std::numeric_limits<double>::max();
  // They are as far apart as the range of FP64 is wide.
  EXPECT_EQ(compared(tensor(DType::f64, {1}, {kLargest}), tensor(DType::f64, {1}, {-kLargest}))[0].largest, 2);
  EXPECT_EQ(compared(tensor(DType::f64, {2}, {1e200, 7}), tensor(DType::f64, {2}, {1e200, 7}))[0].largest, 0);
  EXPECT_EQ(compared(tensor(DType::f64, {1}, {0}), tensor(DType::f64, {1}, {0}))[0].largest, 0);
}

TEST_F(OpDifferencesTest, WhatIsNotFiniteInOneIsCounted) {
  const auto found = compared(tensor(DType::f32, {4}, {1, INFINITY, NAN, 2}), tensor(DType::f32, {4}, {1, 5, NAN, NAN}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].nonfinite_in_one, 2u);
  EXPECT_EQ(found[0].largest, 0) << "of the only element that is finite in both";
}

TEST_F(OpDifferencesTest, OtherShapesAreNamedAndNotCompared) {
  for (const auto& shape : {std::vector<int64_t>{3}, std::vector<int64_t>{2, 1}}) {
    const auto found = compared(random(DType::f32, {2}), random(DType::f32, shape));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(found[0].has_other_shape);
    EXPECT_EQ(found[0].largest, 0);
  }
  EXPECT_FALSE(compared(random(DType::f32, {2}), random(DType::f32, {2}))[0].has_other_shape);
}

}  // namespace
}  // namespace ulpscope
