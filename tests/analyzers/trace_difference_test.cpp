// Where two recordings part, and what of them was not compared.
#include "ulpscope/analyzers/verbs/trace_difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "synthetic_trace.h"

namespace ulpscope::analyzers_test {
namespace {

RunInfo run_of(const std::string& filters = "") {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.filters = filters;
  return run;
}

OpInfo op_of(uint64_t id, const char* name) {
  return {.id = id, .name = name, .module = "fc", .phase = Phase::forward, .attributes = "", .product = {}};
}

// What is written of each step, of a linear and the relu that follows.
struct Step {
  std::vector<double> linear = {1.0, 2.0, 3.0}, relu = {1.0, 0.0};
  bool has_linear = true, has_relu = true;
  StepRow row = SyntheticTrace::default_step();
  uint64_t lost_updates = 3;
  bool is_cut_short = false;
};
using Change = std::function<void(Step&, int step)>;

class Recorded {
 public:
  explicit Recorded(int steps, const Change& change = {}, const RunInfo& run = run_of(), bool in_other_order = false)
      : trace_(run) {
    uint32_t linear = 0, relu = 0;
    for (const bool is_linear : {!in_other_order, in_other_order})
      (is_linear ? linear : relu) = trace_.add_output(is_linear ? op_of(7, "linear") : op_of(8, "relu"), TensorInfo());
    for (int number = 0; number < steps; ++number) {
      Step step;
      if (change) change(step, number);
      if (step.is_cut_short) trace_.add_event(EventKind::cut_short);
      if (step.has_linear) trace_.add(linear, make_row(step.linear, DType::f32));
      if (step.has_relu) trace_.add(relu, make_row(step.relu, DType::f32));
      if (step.has_linear) trace_.add_update(linear, 10, step.lost_updates, 0);
      trace_.end_step(step.row);
    }
  }
  Snapshot read() { return trace_.read(); }

 private:
  SyntheticTrace trace_;
};

TraceDifference difference(Recorded&& first, Recorded&& second) { return find_difference(first.read(), second.read()); }

// Numbers of tensors are a trace's own; outputs are the same by their op's id.
TEST(TraceDifference, TracesOfTheSameNumbersHaveNone) {
  const TraceDifference found = difference(Recorded(4), Recorded(4, {}, run_of(), true));
  EXPECT_FALSE(found.difference);
  EXPECT_EQ(found.steps, 4u);
  EXPECT_EQ(found.rows, 4u * 3u);
  EXPECT_EQ(found.missing_steps + found.unrecorded_rows, 0u);
  EXPECT_FALSE(found.first_missing_step);
}

TEST(TraceDifference, IsTheFirstInOrderOfExecution) {
  struct Case {
    Change change;
    const char *op, *what, *first, *second;
  };
  const std::vector<Case> cases{
      {[](Step& step, int number) { step.relu[0] = number == 2 ? 1.5 : 1.0; }, "relu", "largest", "1", "1.5"},
      {[](Step& step, int number) {
         if (number == 2) step.relu[0] = step.linear[2] = 4;
       },
       "linear", "largest", "3", "4"},
      {[](Step& step, int number) { step.linear[0] = number == 2 ? NAN : 1.0; }, "linear", "NaN", "0", "1"},
      {[](Step& step, int number) { step.has_relu = number != 2; }, "relu", "", "there", "not there"},
      {[](Step& step, int number) { step.lost_updates = number == 2 ? 4 : 3; }, "linear", "lost updates", "3", "4"},
      {[](Step& step, int number) { step.row.loss = number == 2 ? 1.25 : 1.0; }, "", "loss", "1", "1.25"},
      {[](Step& step, int number) { step.row.skipped = number == 2; }, "", "skipped", "false", "true"}};
  for (const auto& [change, op, what, first, second] : cases) {
    const TraceDifference found = difference(Recorded(4), Recorded(4, change));
    ASSERT_TRUE(found.difference) << what;
    EXPECT_EQ(found.difference->key.op_name, op) << what;
    EXPECT_EQ(found.difference->key.step, 2u) << what;
    EXPECT_EQ(found.difference->what, what);
    EXPECT_EQ(found.difference->first, first) << what;
    EXPECT_EQ(found.difference->second, second) << what;
    EXPECT_EQ(found.steps, 2u) << what;
    const TraceDifference reversed = difference(Recorded(4, change), Recorded(4));
    ASSERT_TRUE(reversed.difference) << what;
    EXPECT_EQ(reversed.difference->first, second) << what;
    EXPECT_EQ(reversed.difference->second, first) << what;
  }
}

// A NaN is equal to itself, and a zero to none of the other sign.
TEST(TraceDifference, IsOneOfBits) {
  const auto with_loss = [](double loss) { return Recorded(1, [=](Step& step, int) { step.row.loss = loss; }); };
  EXPECT_FALSE(difference(with_loss(NAN), with_loss(NAN)).difference);
  EXPECT_TRUE(difference(with_loss(0.0), with_loss(-0.0)).difference);
}

TEST(TraceDifference, StepsThatTheFirstTraceLacksAreCounted) {
  const TraceDifference found = difference(Recorded(3), Recorded(5));
  EXPECT_FALSE(found.difference);
  EXPECT_EQ(found.steps, 3u);
  EXPECT_EQ(found.missing_steps, 2u);
  EXPECT_EQ(found.first_missing_step, 3u);
  // Those of the first that the second has no step of are not asked about.
  EXPECT_EQ(difference(Recorded(5), Recorded(3)).missing_steps, 0u);
}

// Where the size limit stopped rows, that they are not there tells nothing; the steps themselves are compared.
TEST(TraceDifference, RowsThatALimitLeftOutAreNone) {
  const Change cut = [](Step& step, int number) {
    step.is_cut_short = number == 2;
    step.has_linear = number < 2;
    step.has_relu = number <= 2;  // the first pass of the step in which recording stopped
  };
  for (const bool is_first : {true, false}) {
    const TraceDifference found = is_first ? difference(Recorded(4, cut), Recorded(4)) : difference(Recorded(4), Recorded(4, cut));
    EXPECT_FALSE(found.difference);
    EXPECT_EQ(found.steps, 4u);
    EXPECT_EQ(found.rows, 2u * 3u + 1u);
    EXPECT_EQ(found.unrecorded_rows, 2u * 3u - 1u);
    const Change other_loss = [&](Step& step, int number) { step.row.loss = number == 3 ? 2.0 : 1.0; };
    const TraceDifference differs =
        is_first ? difference(Recorded(4, cut), Recorded(4, other_loss)) : difference(Recorded(4, other_loss), Recorded(4, cut));
    ASSERT_TRUE(differs.difference);
    EXPECT_EQ(differs.difference->what, "loss");
  }
  // Before the limit a row that is not there is a difference.
  const TraceDifference early =
      difference(Recorded(4, cut), Recorded(4, [](Step& step, int number) { step.has_relu = number != 1; }));
  ASSERT_TRUE(early.difference);
  EXPECT_EQ(early.difference->key.step, 1u);
}

TEST(TraceDifference, RowsThatFiltersLeaveOutAreNone) {
  const Change without = [](Step& step, int) { step.has_relu = false; };
  const TraceDifference found = difference(Recorded(3, without, run_of("ops=linear")), Recorded(3));
  EXPECT_FALSE(found.difference);
  EXPECT_EQ(found.unrecorded_rows, 3u);
  // Both would have recorded it.
  EXPECT_TRUE(difference(Recorded(3, without, run_of("ops=*")), Recorded(3, {}, run_of("ops=*"))).difference);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
