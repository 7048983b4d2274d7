#include "ulpscope/analyzers/judgements/captured_arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope::analyzers_test {
namespace {

class CapturedArithmetic : public testing::Test {
 protected:
  // An element of a new tensor; its operands are to be added behind it.
  uint32_t add(int64_t parent, const std::string& function, DType dtype, double value) {
    OpInfo op;
    op.id = 100 + nodes_.size();
    op.name = function;
    TensorInfo tensor;
    tensor.dtype = dtype;
    CaptureRow& node = nodes_.emplace_back();
    node.node = static_cast<uint32_t>(nodes_.size() - 1);
    node.parent = parent;
    node.made_by = trace_.add_output(op, tensor);
    node.value = value;
    return node.node;
  }
  // That no op made.
  void add_operand(int64_t parent, double value) {
    CaptureRow& node = nodes_.emplace_back();
    node.node = static_cast<uint32_t>(nodes_.size() - 1);
    node.parent = parent;
    node.value = value;
  }
  std::optional<FlushedElement> behind(uint32_t zero) {
    snapshot_.emplace(trace_.read());
    tree_.emplace(nodes_);
    return flushed_element_behind(Selection(*snapshot_, {}), *tree_, tree_->nodes()[zero]);
  }

  SyntheticTrace trace_;
  std::vector<CaptureRow> nodes_;
  std::optional<Snapshot> snapshot_;
  std::optional<CaptureTree> tree_;
};

TEST_F(CapturedArithmetic, AZeroIsFollowedToTheRoundingThatMadeIt) {
  const uint32_t cast = add(-1, "cast", DType::f32, 0);
  const uint32_t product = add(cast, "mul", DType::f16, 0);
  add_operand(product, 3);
  const uint32_t quotient = add(product, "div", DType::f16, 0);
  add_operand(quotient, 0x1p-13);
  add_operand(quotient, 0x1p13);
  const auto found = behind(cast);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->node->node, quotient);
  EXPECT_EQ(found->magnitude, 0x1p-26);
  EXPECT_FALSE(found->is_bound);
}

TEST_F(CapturedArithmetic, OfASoftmaxTheExponentialIsABound) {
  const uint32_t softmax = add(-1, "softmax", DType::f16, 0);
  add_operand(softmax, -16);
  add_operand(softmax, 0);
  nodes_.back().row = {.count = 3, .largest = 14, .smallest = -16};
  const auto found = behind(softmax);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_bound);
  EXPECT_EQ(found->magnitude, std::exp(-30.0));
}

TEST_F(CapturedArithmetic, AZeroThatIsExactIsNone) {
  const uint32_t product = add(-1, "mul", DType::f16, 0);
  add_operand(product, 0);
  add_operand(product, 5);
  EXPECT_FALSE(behind(product));
}

TEST_F(CapturedArithmetic, AValueThatTheTypeHoldsWasNotFlushed) {
  const uint32_t product = add(-1, "mul", DType::f16, 0);  // a producer that says so is wrong
  add_operand(product, 0x1p-12);
  add_operand(product, 0x1p-12);
  EXPECT_FALSE(behind(product));
}

TEST_F(CapturedArithmetic, OperandsThatWereOverwrittenTellNothing) {
  const uint32_t product = add(-1, "mul", DType::f16, 0);
  add_operand(product, 0x1p-20);
  add_operand(product, 0x1p-20);
  nodes_.back().overwritten = true;
  EXPECT_FALSE(behind(product));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
