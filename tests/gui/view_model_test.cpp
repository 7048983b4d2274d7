// What the reading thread publishes: equal to what analyses say of the same trace, for each state, and as a trace grows or breaks.
#include "ulpscope/gui/view_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <utility>

#include "synthetic_trace.h"
#include "tests/gui/open_run.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/nan.h"
#include "ulpscope/analyzers/verbs/updates.h"
#include "ulpscope/base/error.h"

namespace ulpscope::gui {
namespace {

using analyzers_test::SyntheticTrace;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class ViewModelTest : public ::testing::Test {
 protected:
  void add_steps(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      trace_.add(gradient_, analyzers_test::make_row(analyzers_test::lognormal(random_, -12, 5, 30), DType::f16, 256));
      trace_.end_step(SyntheticTrace::default_step(1.0 / (1.0 + static_cast<double>(trace_.step())), 256));
    }
  }
  SyntheticTrace trace_;
  std::mt19937 random_{3};
  uint32_t gradient_ = trace_.add_tensor("head", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
};

TEST_F(ViewModelTest, ShowsWhatAnalysesSay) {
  add_steps(30);
  const Snapshot snapshot = trace_.read();
  ViewModel model({trace_.path()}, open_run, false);
  ViewState state;
  model.ask(state);
  model.wait();
  auto results = model.results();
  ASSERT_TRUE(results->report);
  ReportOptions options;
  options.limit = 0;
  EXPECT_EQ(render_json(*results->report), render_json(analyze_all(snapshot, options)));
  EXPECT_EQ(results->run.steps, 30u);
  EXPECT_FALSE(results->matrix) << "nobody asked for it";
  EXPECT_EQ(results->recorded.last, 30u);

  state.view = View::ranges;
  state.steps = {10, 20};
  state.tensor = results->tensors->at(gradient_);
  model.ask(state);
  model.wait();
  results = model.results();
  ASSERT_TRUE(results->matrix);
  AnalysisOptions some;
  some.steps = {10, 20};
  Followed<History> history([] { return History(); }, some);
  history.update(snapshot);
  ASSERT_THAT(results->matrix->series, SizeIs(1));
  ASSERT_THAT(results->matrix->series[0].y, SizeIs(10)) << "the steps that were chosen";
  for (size_t column = 0; column < 10; ++column)
    EXPECT_EQ(results->matrix->series[0].y[column], history.analysis().cell(gradient_, column).value(Measured::flushed));
  ASSERT_TRUE(results->exponents);

  state.view = View::step;
  state.step = 12345;  // beyond the last
  model.ask(state);
  model.wait();
  EXPECT_THAT(model.results()->step->title, HasSubstr("Step 29"));

  state.tensor = "heda linear_backward";
  model.ask(state);
  model.wait();
  EXPECT_THAT(*model.results()->unknown_name, HasSubstr("no tensor 'heda linear_backward'"));
  state.tensor.clear();
  model.ask(state);
  model.wait();
  EXPECT_THAT(*model.results()->unknown_name, HasSubstr("no step 12345"));
  state.step.reset();
  model.ask(state);
  model.wait();
  EXPECT_EQ(*model.results()->unknown_name, "") << "it is over when something else is asked for";
}

// Views of one pass over the rows say what each analysis says that makes a pass of its own.
TEST_F(ViewModelTest, OnePassSaysWhatThreeDo) {
  const uint32_t weight = trace_.add_tensor("head", "adam", Phase::optimizer, Role::weight, DType::f16, "head.weight");
  for (int i = 0; i < 20; ++i) {
    std::vector<double> values = analyzers_test::lognormal(random_, -12, 5, 30);
    if (i > 12) values[3] = NAN;
    trace_.add(gradient_, analyzers_test::make_row(values, DType::f16, 256));
    trace_.add_update(weight, 30, 20, 0);
    trace_.end_step();
  }
  const Snapshot snapshot = trace_.read();
  ViewModel model({trace_.path()}, open_run, false);
  AnalysisOptions all_rows;
  all_rows.limit = 0;
  ReportOptions report_options;
  report_options.limit = 0;
  ViewState state;
  for (const View view : {View::updates, View::why_nan, View::overview}) {
    state.view = view;
    model.ask(state);
    model.wait();
  }
  const auto results = model.results();
  EXPECT_EQ(render_json(*results->updates), render_json(analyze_updates(snapshot, all_rows)));
  EXPECT_EQ(render_json(*results->nan), render_json(analyze_nan(snapshot, all_rows)));
  EXPECT_EQ(render_json(*results->report), render_json(analyze_all(snapshot, report_options)));
  EXPECT_THAT(results->updates->tables, Not(testing::IsEmpty()));
  EXPECT_THAT(results->nan->findings, Not(testing::IsEmpty()));
  // The course has what only rows tell, though at first it was that of the steps alone.
  EXPECT_TRUE(
      std::any_of(results->course->begin(), results->course->end(), [](const Plot& plot) { return plot.name == "nonfinite"; }));
}

TEST_F(ViewModelTest, ATraceThatGrowsIsFollowed) {
  add_steps(3);
  trace_.sink().flush();
  ViewModel model({trace_.path()}, open_run, true);
  std::mutex mutex;
  std::condition_variable news;
  int count = 0;
  model.on_news([&] {
    const std::lock_guard lock(mutex);
    ++count;
    news.notify_all();
  });
  const auto wait_for_steps = [&](uint64_t steps) {
    std::unique_lock lock(mutex);
    while (true) {
      const int before = count;
      lock.unlock();
      const uint64_t seen = model.results()->run.steps;
      lock.lock();
      if (seen >= steps) return seen;
      news.wait(lock, [&] { return count != before; });
    }
  };
  wait_for_steps(1);
  add_steps(40);
  trace_.sink().flush();
  EXPECT_EQ(wait_for_steps(43), 43u);
  EXPECT_EQ(model.results()->run.writer, WriterState::alive);
  model.on_news({});
}

// A trace that nobody writes any more is watched all the same: what becomes of its file is said, and nothing of another file is
// shown.
TEST_F(ViewModelTest, WhatBecomesOfAnEndedTraceIsSaid) {
  add_steps(40);
  trace_.read();  // closed
  SyntheticTrace second;
  second.end_step();
  second.read();
  TemporaryFolder folder;
  const std::string other = folder.file("other.h5");
  std::filesystem::copy_file(second.path(), other);
  struct Case {
    const char* name;
    std::function<void(const std::string& path)> change;
    const char* said;
  };
  const Case cases[] = {
      {"removed", [](const std::string& path) { std::filesystem::remove(path); }, "was removed while it was read"},
      {"replaced", [&](const std::string& path) { std::filesystem::rename(other, path); }, "was replaced by another file"},
      {"truncated", [](const std::string& path) { std::filesystem::resize_file(path, 3000); }, "was truncated while it was read"},
  };
  for (const bool is_second : {false, true}) {
    for (const Case& each : cases) {
      const std::string path = folder.file(std::string(each.name) + (is_second ? "2.h5" : ".h5"));
      std::filesystem::copy_file(trace_.path(), path);
      if (!std::filesystem::exists(other)) std::filesystem::copy_file(second.path(), other);
      std::mutex mutex;
      std::condition_variable news;
      bool is_told = false;
      ViewModel model(is_second ? std::vector<std::string>{trace_.path(), path} : std::vector<std::string>{path}, open_run, true);
      model.on_news([&] {
        const std::lock_guard lock(mutex);
        is_told = true;
        news.notify_all();
      });
      model.ask({});
      model.wait();
      ASSERT_EQ(model.results()->failure, "") << each.name;
      each.change(path);
      for (std::string failure; failure.empty(); failure = model.results()->failure) {
        std::unique_lock lock(mutex);
        news.wait(lock, [&] { return std::exchange(is_told, false); });
      }
      EXPECT_THAT(model.results()->failure, AllOf(HasSubstr(path), HasSubstr(each.said)));
      // Whatever is asked for next, it goes on being said.
      ViewState state;
      state.view = View::step;
      model.ask(state);
      model.wait();
      EXPECT_THAT(model.results()->failure, HasSubstr(path));
      model.on_news({});
    }
  }
}

// A window beside a run is there before its trace is.
TEST_F(ViewModelTest, ARunThatHasNotBegunIsAwaited) {
  std::mutex mutex;
  std::condition_variable asked;
  int times = 0;
  bool begun = false;
  const auto open_later = [&](const std::string& path) -> std::optional<RunSet> {
    const std::lock_guard lock(mutex);
    ++times;
    asked.notify_all();
    return begun ? std::optional<RunSet>(path) : std::nullopt;
  };
  ViewModel model({trace_.path()}, open_later, true);
  model.ask({});
  {
    std::unique_lock lock(mutex);
    asked.wait(lock, [&] { return times >= 2; });
  }
  EXPECT_TRUE(model.results()->is_awaited);
  EXPECT_EQ(model.results()->failure, "");
  EXPECT_FALSE(model.results()->report);
  add_steps(3);
  trace_.sink().flush();
  bool has_read = false;
  model.on_news([&] {
    const std::lock_guard lock(mutex);
    has_read = true;
    asked.notify_all();
  });
  std::unique_lock lock(mutex);
  begun = true;
  const auto is_read = [&] {
    const bool told = has_read;
    has_read = false;
    return told;
  };
  for (uint64_t steps = 0; steps < 3;) {
    asked.wait(lock, is_read);
    lock.unlock();
    steps = model.results()->run.steps;
    lock.lock();
  }
  lock.unlock();
  EXPECT_FALSE(model.results()->is_awaited);
  model.on_news({});
}

// With very many tensors modules are folded to begin with, whatever is filtered; rows beyond the most are counted.
TEST(ViewModel, FoldsKeepTheirMeaning) {
  SyntheticTrace trace;
  for (int i = 0; i < 2100; ++i)
    trace.add(trace.add_tensor(fmt::format("m{}.a{}", i % 2, i), "linear", Phase::forward, Role::activation, DType::f16),
              analyzers_test::make_row({1, 2}, DType::f16));
  trace.end_step();
  trace.read();
  ViewModel model({trace.path()}, open_run, false);
  ViewState state;
  state.view = View::ranges;
  const auto rows = [&] {
    model.ask(state);
    model.wait();
    return model.results()->matrix->series.size();
  };
  EXPECT_EQ(rows(), 2u) << "folded";
  state.filter = "m1.a1";
  EXPECT_EQ(rows(), 1u) << "and so it stays";
  toggle_fold(state, "m1");
  EXPECT_GT(rows(), 50u);
  state.filter.clear();
  state.is_flat = true;
  EXPECT_EQ(rows(), 2000u);
  EXPECT_EQ(model.results()->matrix->series_left_out, 100u);
}

TEST(ViewModel, WhatIsNoTraceIsSaid) {
  ViewModel model({"/nowhere/at all.h5"}, open_run, true);
  model.ask({});
  model.wait();
  EXPECT_THAT(model.results()->failure, HasSubstr("/nowhere/at all.h5"));
  EXPECT_THROW(model.check(), Error);
}

TEST(ViewModel, ANumberNeedsNoTrace) {
  SyntheticTrace trace;
  trace.end_step();
  trace.read();
  ViewModel model({trace.path()}, open_run, false);
  ViewState state;
  state.view = View::number;
  for (const char* number : {"65520", "0x3C00", "nan"}) {
    state.number = number;
    model.ask(state);
    model.wait();
    ASSERT_TRUE(model.results()->number) << number;
    EXPECT_EQ(model.results()->failure, "");
  }
  state.number = "six";
  model.ask(state);
  model.wait();
  EXPECT_THAT(model.results()->failure, HasSubstr("six"));
}

}  // namespace
}  // namespace ulpscope::gui
