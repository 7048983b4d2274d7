// Captures that reach back over several ops: what they hold is what the tensors hold, seen through views and casts, and says where
// memory holds something else by now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/recorder/memory_sink.h"
#include "tests/support/engine_fixture.h"
#include "ulpscope/core/engine/autocast.h"
#include "ulpscope/core/observe/recording.h"

namespace ulpscope {
namespace {

// Fills a log that no recorder has.
class Logging : public Observer {
 public:
  explicit Logging(CallLog& to) : log_(to) {}
  void after(const OpEvent& event) override { log_.add(event); }

 private:
  CallLog& log_;
};

class CallLogTest : public EngineTest {
 protected:
  CallLogTest() {
    context_.observers = {&observer_};
    context_.begin_step(0);
    recorder_.begin_step(0);
    observer_.begin_pass();
  }

  const std::vector<CaptureRow>& captures() { return sink_.captures; }
  std::string op_of(const CaptureRow& row) const {
    return row.made_by < 0 ? "" : sink_.ops[sink_.tensors[static_cast<size_t>(row.made_by)].op].name;
  }
  std::vector<CaptureRow> operands_of(const CaptureRow& parent) {
    std::vector<CaptureRow> found;
    for (const CaptureRow& row : captures())
      if (row.parent == static_cast<int64_t>(parent.node) && row.tensor == parent.tensor) found.push_back(row);
    return found;
  }
  Tensor source(const Tensor& tensor) { return call("source", {tensor}); }

  MemorySink sink_;
  Recorder recorder_{sink_, {}};
  RecordingObserver observer_{recorder_, *backend_};
};

// exp of the transpose of relu(z) w^T: each value is where the tensors have it.
TEST_F(CallLogTest, AnOverflowIsFollowedThroughAViewAndAProductToWhatMadeItsFactors) {
  const NoGrad no_grad;
  const Tensor z = source(tensor(DType::f32, {2, 3}, {1, -2, 3, 4, 50, 6})), w = source(random(DType::f32, {4, 3}, 1, 1, 2)),
               x = relu(z), product = linear(x, w), turned = transpose(product);
  const Tensor broken = call("exp", {turned});
  const std::vector<double> of_z = to_host(z), of_w = to_host(w), of_x = to_host(x), of_turned = to_host(turned),
                            result = to_host(broken);
  const auto first = std::find_if(result.begin(), result.end(), [](double value) { return std::isinf(value); });
  ASSERT_NE(first, result.end());
  const auto element = first - result.begin();
  ASSERT_EQ(element % 2, 1);  // of the row with the 50

  ASSERT_FALSE(captures().empty());
  const CaptureRow& origin = captures()[0];
  EXPECT_EQ(op_of(origin), "exp");
  EXPECT_EQ(origin.element, element);
  EXPECT_EQ(origin.value, INFINITY);
  EXPECT_EQ(origin.shape, (std::vector<int64_t>{4, 2}));
  const std::vector<CaptureRow> argument = operands_of(origin);
  ASSERT_EQ(argument.size(), 1u);
  EXPECT_EQ(op_of(argument[0]), "linear");
  EXPECT_EQ(argument[0].element, element);  // as exp counts
  EXPECT_EQ(argument[0].value, of_turned[static_cast<size_t>(element)]);
  EXPECT_EQ(argument[0].follow, CaptureFollow::followed);
  EXPECT_EQ(argument[0].terms, 3);
  EXPECT_EQ(argument[0].broke_at, -1);

  const std::vector<CaptureRow> factors = operands_of(argument[0]);
  ASSERT_EQ(factors.size(), 6u);
  const int64_t row = element % 2, column = element / 2;
  for (size_t k = 0; k < 3; ++k) {
    const CaptureRow &of_row = factors[2 * k], &of_column = factors[2 * k + 1];
    EXPECT_EQ(of_row.term, static_cast<int64_t>(k));
    EXPECT_EQ(of_column.term, static_cast<int64_t>(k));
    EXPECT_EQ(op_of(of_row), "relu");
    EXPECT_EQ(of_row.element, 3 * row + static_cast<int64_t>(k));
    EXPECT_EQ(of_row.value, of_x[static_cast<size_t>(of_row.element)]);
    EXPECT_EQ(of_row.follow, CaptureFollow::followed);
    EXPECT_EQ(of_column.element, 3 * column + static_cast<int64_t>(k));
    EXPECT_EQ(of_column.value, of_w[static_cast<size_t>(of_column.element)]);
    EXPECT_EQ(of_column.follow, CaptureFollow::given);
    const std::vector<CaptureRow> before = operands_of(of_row);
    ASSERT_EQ(before.size(), 1u);
    EXPECT_EQ(op_of(before[0]), "source");
    EXPECT_EQ(before[0].value, of_z[static_cast<size_t>(of_row.element)]);
    EXPECT_EQ(before[0].follow, CaptureFollow::none);  // three ops up
  }
}

// 300 x 300 overflows FP16. Between the ops stand the casts of autocast.
TEST_F(CallLogTest, CastsCountForNoOp) {
  Tensor w = tensor(DType::f32, {1, 1}, {300});
  w.body()->parameter = intern("w");
  w.set_requires_grad(true);
  Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
  const AutocastScope scope(&autocast);
  const Tensor z = source(tensor(DType::f32, {1, 1}, {300})), x = relu(z);
  linear(x, w);
  ASSERT_FALSE(captures().empty());
  EXPECT_EQ(op_of(captures()[0]), "linear");
  EXPECT_EQ(captures()[0].partial_sum, 90000);
  std::vector<std::string> path;
  for (CaptureRow at = captures()[0]; !operands_of(at).empty(); at = operands_of(at)[0]) path.push_back(op_of(operands_of(at)[0]));
  EXPECT_THAT(path, ::testing::ElementsAre("cast", "relu", "source"));
  for (const CaptureRow& row : captures()) EXPECT_TRUE(row.node == 0 || row.value == 300) << row.node;
}

// What was freed, and what was written over, is not what the op read: nothing is made up about it.
TEST_F(CallLogTest, MemoryThatHoldsOtherValuesIsGone) {
  const NoGrad no_grad;
  constexpr int64_t kLarge = CallLog::kMostBytesOfOne / sizeof(float) + 1;
  Tensor x;
  {
    const Tensor z = source(random(DType::f32, {kLarge}, 1, 100, 101));
    x = relu(z);
  }
  const Tensor other = source(random(DType::f32, {kLarge}, 2, 7, 8));  // may lie where z was
  call("exp", {x});
  ASSERT_EQ(captures().size(), 2u);
  EXPECT_EQ(captures()[1].value, to_host(x)[0]);
  EXPECT_EQ(captures()[1].follow, CaptureFollow::gone);

  sink_.captures.clear();
  const Tensor a = call("scale", {source(tensor(DType::f32, {1}, {40}))}, {{"factor", 2.0}}),
               b = call("scale", {a}, {{"factor", 1.5}});
  const Tensor more = source(tensor(DType::f32, {1}, {20}));
  call("accumulate", {a, more});  // a is 100 from here on
  call("exp", {b});               // of 120
  ASSERT_EQ(captures().size(), 2u);
  EXPECT_EQ(captures()[1].value, 120);
  EXPECT_EQ(captures()[1].follow, CaptureFollow::gone);

  sink_.captures.clear();
  call("exp", {a});  // the sum itself is there, and how it came about but for what it was written over
  ASSERT_EQ(captures().size(), 4u);
  EXPECT_EQ(captures()[1].value, 100);
  EXPECT_EQ(captures()[1].follow, CaptureFollow::followed);
  EXPECT_TRUE(captures()[2].overwritten);
  EXPECT_EQ(captures()[2].follow, CaptureFollow::gone);
  EXPECT_FALSE(captures()[3].overwritten);
  EXPECT_EQ(captures()[3].value, 20);
  EXPECT_EQ(captures()[3].follow, CaptureFollow::given);
}

// What an op of the backward pass read is often freed before the next op runs.
TEST_F(CallLogTest, SmallTensorsAreKnownAfterTheirDeath) {
  const NoGrad no_grad;
  Tensor x;
  {
    const Tensor z = source(tensor(DType::f32, {1}, {40}));
    x = call("scale", {z}, {{"factor", 2.5}});
  }
  const Tensor other = source(tensor(DType::f32, {1}, {7}));  // would lie where z was
  call("exp", {x});
  ASSERT_EQ(captures().size(), 3u);
  EXPECT_EQ(captures()[1].value, 100);
  EXPECT_EQ(captures()[1].follow, CaptureFollow::followed);
  EXPECT_EQ(captures()[2].value, 40);
}

// However many die, no more than so much stays in memory, and nothing once the pass is over.
TEST_F(CallLogTest, WhatIsKeptOfTheDeadIsBounded) {
  const NoGrad no_grad;
  CallLog log;
  Logging logging(log);
  context_.observers = {&logging};
  const Tensor x = random(DType::f32, {CallLog::kMostBytesOfOne / sizeof(float)}, 1, 1, 2);
  const size_t before = backend_->allocated_bytes();
  for (int i = 0; i < 40; ++i) relu(x);
  EXPECT_GT(backend_->allocated_bytes(), before);
  EXPECT_LE(backend_->allocated_bytes(), before + CallLog::kMostBytesKept);
  log.begin_pass();
  EXPECT_EQ(backend_->allocated_bytes(), before);
}

TEST_F(CallLogTest, APassEndsWhatIsKnownOfTheOneBefore) {
  const NoGrad no_grad;
  const Tensor x = relu(source(tensor(DType::f32, {1}, {100})));
  recorder_.end_pass();
  observer_.begin_pass();
  call("exp", {x});
  ASSERT_EQ(captures().size(), 2u);
  EXPECT_EQ(captures()[1].follow, CaptureFollow::given);
}

// Of 500 terms only the heaviest are kept, and of these the heaviest are followed.
TEST_F(CallLogTest, OfManyOperandsTheHeaviestAreKept) {
  const NoGrad no_grad;
  constexpr int64_t kTerms = 500;
  const Tensor x = relu(source(random(DType::f32, {1, kTerms}, 3, 0.01, 1))),
               w = relu(source(random(DType::f32, {1, kTerms}, 4, 0.0005, 0.05)));
  call("exp", {call("exp", {linear(x, w)})});  // the sum of 500 products is about 6, the first exp above 89
  ASSERT_FALSE(captures().empty());
  const std::vector<CaptureRow> argument = operands_of(captures()[0]);
  ASSERT_EQ(argument.size(), 1u);
  const std::vector<CaptureRow> sum = operands_of(argument[0]);
  ASSERT_EQ(sum.size(), 1u);
  const std::vector<CaptureRow> factors = operands_of(sum[0]);
  ASSERT_EQ(factors.size(), CallLog::kMostOperands);
  EXPECT_EQ(sum[0].terms, kTerms);
  // Captures have the first 64 terms of a sum.
  const std::vector<double> of_x = to_host(x), of_w = to_host(w);
  std::vector<double> products;
  for (size_t k = 0; k < 64; ++k) products.push_back(of_x[k] * of_w[k]);
  std::sort(products.begin(), products.end(), std::greater<>());
  std::set<int64_t> terms;
  for (const CaptureRow& factor : factors) terms.insert(factor.term);
  EXPECT_EQ(terms.size(), CallLog::kMostOperands / 2);
  for (const int64_t term : terms) EXPECT_GE(of_x[static_cast<size_t>(term)] * of_w[static_cast<size_t>(term)], products[7]);
  for (const CaptureRow& factor : factors) EXPECT_EQ(factor.follow, CaptureFollow::none);  // three ops up
}

TEST_F(CallLogTest, OfAnOpAtMostEightOperandsAreFollowed) {
  const NoGrad no_grad;
  const Tensor z = source(random(DType::f32, {1, 40}, 3, 100, 200)), x = relu(z), w = source(random(DType::f32, {1, 40}, 4, 1, 2));
  call("scale", {linear(x, w)}, {{"factor", 1e38}});
  const std::vector<CaptureRow> sum = operands_of(captures().at(0));
  ASSERT_EQ(sum.size(), 1u);
  int followed = 0, given = 0;
  for (const CaptureRow& factor : operands_of(sum[0])) {
    followed += factor.follow == CaptureFollow::followed;
    given += factor.follow == CaptureFollow::given;
  }
  EXPECT_EQ(followed, 4);  // of four terms, whose other factors are given
  EXPECT_EQ(given, 4);
}

// However long a pass is, the last call is the one that is explained, and what was forgotten is not called given.
TEST_F(CallLogTest, ALongPassForgetsItsBeginning) {
  const NoGrad no_grad;
  CallLog log;
  Logging logging(log);
  context_.observers = {&logging};
  const Tensor x = tensor(DType::f32, {1}, {100}), early = relu(x);
  for (size_t i = 1; i < CallLog::kMostCalls; ++i) relu(x);
  call("exp", {early});
  const std::vector<CaptureNode> nodes = log.capture(*backend_, 0);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].value, INFINITY);
  EXPECT_EQ(nodes[1].value, 100);
  EXPECT_EQ(nodes[1].follow, CaptureFollow::gone);
}

}  // namespace
}  // namespace ulpscope
