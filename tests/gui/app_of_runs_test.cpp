// The window on runs of several traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "app_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/writer_control.h"

namespace ulpscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks of five steps: ten step rows, of five steps.
TEST(AppOfRanks, RowsOfRanksAreToldApart) {
  analyzers_test::RankedTraces traces(2, "fp16");
  for (size_t rank = 0; rank < 2; ++rank) {
    SyntheticTrace& trace = traces[rank];
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    for (int step = 0; step < 5; ++step) {
      trace.add(gradient, analyzers_test::make_row({static_cast<double>(rank) + 1.0, 0.5}, DType::f16));
      trace.end_step();
    }
  }
  const std::vector<std::string>& paths = traces.close();
  ViewModel model(
      {"ranks"}, [&](const std::string& path) { return RunSet(path, paths); }, false);
  Headless host(1000, 700, 1, true);
  ViewState state;
  state.view = View::step;
  App app(model, host.textures(), state);
  for (int i = 0; i < 4; ++i) {
    model.wait();
    host.run(app);
  }
  EXPECT_EQ(model.results()->run, (RunNumbers{WriterState::closed, 5, 2, 10}));
  EXPECT_THAT(text_of_frame(app), HasSubstr("ranks  |  closed  |  5 steps of 2 ranks, 10 rows"));
  const Table& step = *model.results()->step;
  ASSERT_EQ(step.columns.at(1).name, "rank");
  std::vector<std::pair<int64_t, double>> seen;  // rank, largest
  const auto largest = static_cast<size_t>(
      std::find_if(step.columns.begin(), step.columns.end(), [](const Column& column) { return column.name == "largest"; }) -
      step.columns.begin());
  for (const TableRow& row : step.rows) seen.emplace_back(std::get<int64_t>(row.cells[1]), std::get<double>(row.cells[largest]));
  std::sort(seen.begin(), seen.end());
  EXPECT_THAT(seen, ElementsAre(std::pair(0, 1.0), std::pair(1, 2.0)));
  // A lane for each rank.
  EXPECT_GT(app.names().find("lane row 1")->from.y, app.names().find("lane row 0")->from.y);
}

// Of a step of several micro-batches the table says of which each row is.
TEST(AppOfMicroBatches, RowsOfMicroBatchesAreToldApart) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  for (uint32_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    TensorRow row = analyzers_test::make_row({1.0 + micro_batch}, DType::f16);
    row.micro_batch = micro_batch;
    trace.add(gradient, row);
  }
  trace.end_step();
  trace.read();
  ViewModel model({trace.path()}, open_run, false);
  ViewState state;
  state.view = View::step;
  model.ask(state);
  model.wait();
  const Table& step = *model.results()->step;
  ASSERT_EQ(step.columns.at(1).name, "micro_batch");
  ASSERT_EQ(step.rows.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(step.rows[static_cast<size_t>(i)].cells.at(1), Cell(i));
}

// A run that is killed while it is shown is told to be dead, and what it had written stays.
TEST(AppOfALiveRun, ItsDeathIsTold) {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  trace_test::WriterProcess writer(path, 5);
  writer.call("steps 20");
  std::mutex mutex;
  std::condition_variable changed;
  bool is_new = false;
  ViewModel model({path}, open_run, true);
  model.on_news([&] {
    const std::lock_guard lock(mutex);
    is_new = true;
    changed.notify_all();
  });
  const auto wait_until = [&](WriterState state) {
    while (model.results()->run.writer != state || model.results()->run.steps < 20) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_new; });
      is_new = false;
    }
  };
  model.ask({});
  wait_until(WriterState::alive);
  writer.kill();
  wait_until(WriterState::dead);
  Headless host(1000, 700, 1, true);
  App app(model, host.textures(), {});
  for (int i = 0; i < 3; ++i) host.run(app);
  EXPECT_THAT(text_of_frame(app), HasSubstr("its writer died  |  20 steps"));
  EXPECT_EQ(app.names().find("failure"), nullptr);
  model.on_news({});
}

// Of two runs, the foot has the numbers of both.
TEST(AppOfRanks, TheFootHasTheNumbersOfBothRuns) {
  SyntheticTrace first, second;
  first.end_step();
  for (int i = 0; i < 3; ++i) second.end_step();
  first.read();
  second.read();
  ViewModel model({first.path(), second.path()}, open_run, false);
  Headless host(1000, 700, 1, true);
  App app(model, host.textures(), {});
  model.wait();
  const std::string text = text_of_frame(app);
  EXPECT_THAT(text, HasSubstr(first.path() + "  |  closed  |  1 step, 0 rows  |  and "));
}

}  // namespace
}  // namespace ulpscope::gui
