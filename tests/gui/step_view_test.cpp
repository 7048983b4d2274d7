// The view of one step, driven as a hand does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app_fixture.h"

namespace ulpscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A step's rows as lanes and as a table, and from one tensor to what it was made of and to what used it, as its edges say.
std::string make_chain(SyntheticTrace& trace) {
  std::mt19937 random(3);
  const uint32_t input = trace.add_tensor("", "source", Phase::data, Role::input, DType::f32);
  const uint32_t hidden = trace.add_tensor("body", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t other = trace.add_tensor("head", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t sum = trace.add_tensor("", "add", Phase::forward, Role::activation, DType::f16);
  // Input 0 of op 1 is output 0 of op 0, and so on: each tensor has an op of its own.
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.sink().add_edge({0, 2, 0, 0, 0});
  trace.sink().add_edge({0, 3, 0, 1, 0});
  trace.sink().add_edge({0, 3, 1, 2, 0});
  for (int step = 0; step < 3; ++step) {
    for (const uint32_t tensor : {input, hidden, other, sum})
      trace.add(tensor, analyzers_test::make_row(analyzers_test::lognormal(random, -18, 5, 100),
                                                 tensor == input ? DType::f32 : DType::f16));
    trace.end_step();
  }
  trace.read();
  return trace.path();
}

class StepAppTest : public AppTest {
 protected:
  StepAppTest() : AppTest(make_chain) {
    app_.state().view = View::step;
    settle();
  }
};

TEST_F(StepAppTest, ValuesAreFollowedAlongTheirEdges) {
  const std::vector<std::string>& tensors = *model_.results()->tensors;
  EXPECT_LT(place("lane row 0").middle().y, place("lane row 1").middle().y) << "data above forward";
  EXPECT_EQ(place("lane row 1").middle().y, place("lane row 3").middle().y);
  EXPECT_LT(place("lane row 1").to.x, place("lane row 2").to.x) << "in order of execution";
  click("lane row 0");
  EXPECT_EQ(app_.state().tensor, tensors[0]);
  const auto flow = [&] {
    std::vector<std::string> rows;
    for (const TableRow& row : model_.results()->flow->rows)
      rows.push_back(std::get<std::string>(row.cells[0]) + " " + std::get<std::string>(row.cells[1]));
    return rows;
  };
  EXPECT_THAT(flow(), ElementsAre("used by " + tensors[1], "used by " + tensors[2]));
  key(Key::u);
  EXPECT_EQ(app_.state().tensor, tensors[1]);
  EXPECT_THAT(flow(), ElementsAre("made of " + tensors[0], "used by " + tensors[3]));
  key(Key::u);
  EXPECT_EQ(app_.state().tensor, tensors[3]);
  EXPECT_THAT(flow(), ElementsAre("made of " + tensors[1], "made of " + tensors[2]));
  key(Key::u);
  EXPECT_EQ(app_.state().tensor, tensors[3]) << "nothing used it";
  click("table flow row 1");
  EXPECT_EQ(app_.state().tensor, tensors[2]);
  key(Key::m);
  EXPECT_EQ(app_.state().tensor, tensors[0]);
  key(Key::down);
  EXPECT_EQ(app_.state().tensor, tensors[1]) << "the next row of the step";
}

TEST_F(StepAppTest, OpsOfAStepAreFound) {
  click("filter");
  host_.type("head");
  settle();
  EXPECT_EQ(model_.results()->step->rows.size(), 1u);
  ASSERT_EQ(model_.results()->histograms->series.size(), 1u);
  // The exponents that stand beside it are those that were recorded.
  const Series& row = model_.results()->histograms->series[0];
  double elements = 0;
  for (const double count : row.y) elements += count;
  uint64_t recorded = 0;
  Snapshot(trace_.path()).visit_rows({0, 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& each : rows)
      if (each.tensor == 2) recorded = each.statistics.count - each.statistics.zeros;
    return true;
  });
  EXPECT_EQ(elements, static_cast<double>(recorded));
}

}  // namespace
}  // namespace ulpscope::gui
