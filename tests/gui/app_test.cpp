// The window's content, driven as a hand does: the pointer and keys go in, and the state, the places of things and the text that
// is shown come out.
#include "ulpscope/gui/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/what_if_report.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/keys.h"
#include "ulpscope/gui/plots.h"

namespace ulpscope::gui {
namespace {

using analyzers_test::SyntheticTrace;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunSet open(const std::string& path) { return RunSet(path); }

// A run of 100 steps with two FP16 gradients, one of which overflows in step 40, where the scale backs off.
std::string make_trace(SyntheticTrace& trace, RecordLevel level = RecordLevel::stats) {
  std::mt19937 random(11);
  const uint32_t first = trace.add_tensor("body", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t second =
      trace.add_tensor("head<script>", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  for (uint64_t step = 0; step < 100; ++step) {
    for (const uint32_t tensor : {first, second}) {
      std::vector<double> values = analyzers_test::lognormal(random, tensor == first ? -20 : -5, 4, 200);
      if (step == 40 && tensor == second) values[7] = 1e6;
      trace.add(tensor, level == RecordLevel::health ? analyzers_test::make_health_row(values, DType::f16, 1024)
                                                     : analyzers_test::make_row(values, DType::f16, 1024));
    }
    StepRow row = SyntheticTrace::default_step(3.0 / (1 + static_cast<double>(step)), step <= 40 ? 1024 : 512);
    if (step == 40) {
      row.skipped = true;
      row.scale_after = 512;
      trace.add_event(EventKind::scale_backoff, second, 1, 512);
    }
    trace.end_step(row);
  }
  trace.read();
  return trace.path();
}

class AppTest : public ::testing::Test {
 protected:
  explicit AppTest(RecordLevel level = RecordLevel::stats, int width = 1000, int height = 700)
      : model_({make_trace(trace_, level)}, open, false), host_(width, height, 1, true), app_(model_, host_.textures(), {}) {
    settle();
  }
  void settle() {
    for (int i = 0; i < 4; ++i) {
      model_.wait();
      host_.run(app_);
    }
  }
  Rectangle place(const std::string& name) {
    const Rectangle* const found = app_.names().find(name);
    EXPECT_NE(found, nullptr) << name;
    return found ? *found : Rectangle{{0, 0}, {1, 1}};
  }
  void click(ImVec2 at) {
    host_.move_to(at);
    host_.run(app_);
    host_.press(true);
    host_.run(app_);
    host_.press(false);
    host_.run(app_);
    host_.move_to({-1, -1});
    settle();
  }
  void click(const std::string& name) { click(place(name).middle()); }
  void drag(ImVec2 from, ImVec2 to) {
    host_.move_to(from);
    host_.run(app_);
    host_.press(true);
    host_.run(app_);
    host_.move_to(to);
    host_.run(app_);
    host_.press(false);
    host_.run(app_);
    settle();
  }
  void key(Key which, bool control = false, bool shift = false, int offset = 0) {
    host_.key(number_of(which) + offset, true, control, shift);
    host_.run(app_);
    host_.key(number_of(which) + offset, false);
    host_.run(app_);
    settle();
  }
  // All text of a frame. ImGui ends what it logs with the window.
  std::string text() {
    ImGui::NewFrame();
    ImGui::LogToClipboard(8);
    app_.frame();
    ImGui::Render();
    return ImGui::GetClipboardText();
  }

  SyntheticTrace trace_;
  ViewModel model_;
  Headless host_;
  App app_;
};

TEST_F(AppTest, EveryViewIsAClickAndAKeyAway) {
  for (int i = 0; i < kViews; ++i) {
    const auto view = static_cast<View>(i);
    click(std::string("view ") + name_of(view));
    EXPECT_EQ(app_.state().view, view);
    key(Key::digit_1, false, false, (i + 3) % kViews);
    EXPECT_EQ(app_.state().view, static_cast<View>((i + 3) % kViews));
  }
}

TEST_F(AppTest, ShowsTheNumbersThatReportsPrint) {
  const Report& report = *model_.results()->report;
  const std::string overview = text();
  EXPECT_THAT(overview, HasSubstr(verdict_line(report).substr(0, 40)));
  for (const Quantity& fact : report.facts) EXPECT_THAT(overview, HasSubstr(cell_text(fact.value, fact.unit))) << fact.name;
  for (const Cause& cause : report.causes) EXPECT_THAT(overview, HasSubstr(report.findings[cause.finding].title));
  app_.state().view = View::step;
  app_.state().step = 40;
  settle();
  const std::string step = text();
  const Table& table = *model_.results()->step;
  for (const TableRow& row : table.rows)
    for (size_t i = 0; i < row.cells.size(); ++i) EXPECT_THAT(step, HasSubstr(cell_text(row.cells[i], table.columns[i].unit)));
}

TEST_F(AppTest, StepsAreChosenByDragWheelAndKeys) {
  app_.state().view = View::timeline;
  settle();
  const Rectangle plot = place("plot loss");
  const auto at = [&](double step) {
    return ImVec2{plot.from.x + (plot.to.x - plot.from.x) * static_cast<float>(step / 100), plot.middle().y};
  };
  drag(at(20.2), at(59.7));
  EXPECT_EQ(app_.state().steps.first, 20u);
  EXPECT_EQ(app_.state().steps.last, 60u);
  EXPECT_EQ(model_.results()->course->front().series[0].x.front(), 20);
  click(at(51.5));
  EXPECT_EQ(app_.state().step, 40u) << "a little behind the middle of 20 to 60";
  key(Key::right);
  EXPECT_EQ(app_.state().step, 41u);
  key(Key::d);
  EXPECT_EQ(app_.state().steps.first, 28u);
  EXPECT_EQ(app_.state().steps.last, 68u);
  key(Key::z, true);
  EXPECT_EQ(app_.state().steps.first, 20u) << "undone";
  key(Key::escape);
  EXPECT_EQ(app_.state().steps.last, UINT64_MAX);
  host_.move_to(plot.middle());
  host_.run(app_);
  host_.wheel(2);
  host_.run(app_);
  host_.run(app_);
  settle();
  EXPECT_GT(app_.state().steps.first, 10u);
  EXPECT_LT(app_.state().steps.last, 90u);
}

TEST_F(AppTest, AnomaliesAreSteppedThrough) {
  key(Key::period);
  ASSERT_TRUE(app_.state().step);
  std::vector<uint64_t> steps{*app_.state().step};
  for (int i = 0; i < 5; ++i) {
    key(Key::period);
    steps.push_back(*app_.state().step);
  }
  EXPECT_THAT(steps, ::testing::Contains(40u)) << "where the scale backed off";
  key(Key::comma);
  EXPECT_LE(*app_.state().step, steps.back());
}

TEST_F(AppTest, ATensorIsFoundByItsName) {
  key(Key::p, true);
  host_.type("body");
  settle();
  click("found 0");
  settle();
  EXPECT_THAT(app_.state().tensor, HasSubstr("body"));
  EXPECT_EQ(app_.state().view, View::ranges);
  EXPECT_TRUE(model_.results()->exponents);
  click("flushed row 1");
  EXPECT_THAT(app_.state().tensor, HasSubstr("head<script>"));
}

// What a dragged scale shows is what `whatif` says of that tensor at that scale.
TEST_F(AppTest, ALossScaleIsDragged) {
  app_.state().view = View::ranges;
  app_.state().tensor = model_.results()->tensors->at(0);
  settle();
  click("try scale");
  ASSERT_TRUE(app_.state().scale);
  WhatIfOptions options;
  for (int k = kLeastScale; k <= kLargestScale; ++k) options.exponents.push_back(k);
  options.limit = 0;
  const Report report = analyze_what_if(Snapshot(trace_.path()), options);
  const auto table =
      std::find_if(report.tables.begin(), report.tables.end(), [](const Table& each) { return each.name == "what_if"; });
  ASSERT_NE(table, report.tables.end());
  const auto cell = [&](const TableRow& row, const char* name) {
    const auto column =
        std::find_if(table->columns.begin(), table->columns.end(), [&](const Column& each) { return each.name == name; });
    return cell_text(row.cells[static_cast<size_t>(column - table->columns.begin())], column->unit);
  };
  const Rectangle slider = place("scale");
  for (const float part : {0.2F, 0.5F, 0.8F}) {
    click(ImVec2(slider.from.x + part * (slider.to.x - slider.from.x), slider.middle().y));
    const std::string shown = text();
    const auto row = std::find_if(table->rows.begin(), table->rows.end(), [&](const TableRow& each) {
      return each.key.name == app_.state().tensor &&
             cell(each, "scale") == cell_text(std::ldexp(1.0, *app_.state().scale), Unit::scale);
    });
    ASSERT_NE(row, table->rows.end()) << *app_.state().scale;
    EXPECT_THAT(shown, HasSubstr("flushed " + cell(*row, "flushed") + ", subnormal " + cell(*row, "subnormal") + ", overflow " +
                                 cell(*row, "overflow")));
  }
}

TEST_F(AppTest, PicturesAreTheSameBytes) {
  app_.state().view = View::ranges;
  app_.state().tensor = model_.results()->tensors->at(0);
  settle();
  const std::string first = png_of(host_.draw(app_)), second = png_of(host_.draw(app_));
  EXPECT_EQ(first, second);
  // What the picture is of decides its colours: where all was flushed it is another one.
  app_.state().quantity = Measured::headroom;
  settle();
  EXPECT_NE(png_of(host_.draw(app_)), first);
}

// The colour of each cell of the picture is that of its value on the map, or of nothing.
TEST_F(AppTest, ColoursAreThoseOfTheValues) {
  app_.state().view = View::ranges;
  settle();
  const Plot& matrix = *model_.results()->matrix;
  host_.move_to({-1, -1});
  const Image image = host_.draw(app_);
  for (size_t row = 0; row < matrix.series.size(); ++row) {
    const Rectangle line = place("flushed row " + std::to_string(row));
    const Rectangle plot = place("plot flushed");
    for (size_t column = 0; column < matrix.series[row].y.size(); column += 7) {
      const float x = plot.from.x + (plot.to.x - plot.from.x) * (static_cast<float>(column) + 0.5F) / 100;
      const size_t pixel = static_cast<size_t>(line.middle().y) * static_cast<size_t>(image.width) + static_cast<size_t>(x);
      const double share = matrix.series[row].y[column];
      const double place = std::max(0.0, 1 + std::log10(share) / 6);
      EXPECT_EQ(image.pixels[pixel], share <= 0 ? theme(false).plot : map_color(place, false))
          << row << " " << column << " " << share;
    }
  }
}

TEST_F(AppTest, NoEventsOfAnyKindMakeItFall) {
  std::mt19937 random(17);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 3000; ++i) {
    switch (pick(8)) {
      case 0:
        host_.press(pick(2) == 0, pick(3));
        break;
      case 1:
        host_.wheel(static_cast<float>(pick(9) - 4));
        break;
      case 2:
        host_.key(number_of(static_cast<Key>(pick(14))), pick(2) == 0, pick(3) == 0, pick(3) == 0);
        break;
      case 3:
        if (pick(4) == 0) host_.type(std::string(1, static_cast<char>(32 + pick(90))));
        break;
      case 4:
        if (pick(20) == 0) host_.resize(100 + pick(1800), 80 + pick(1000));
        break;
      default:
        host_.move_to({static_cast<float>(pick(1100) - 50), static_cast<float>(pick(800) - 50)});
    }
    if (pick(16) == 0)
      host_.draw(app_);
    else
      host_.run(app_);
  }
  settle();
  EXPECT_GE(app_.state().steps.last, app_.state().steps.first);
}

class CoarseAppTest : public AppTest {
 protected:
  CoarseAppTest() : AppTest(RecordLevel::health) {}
};

TEST_F(CoarseAppTest, SaysWhatToRecord) {
  app_.state().view = View::ranges;
  app_.state().tensor = model_.results()->tensors->at(0);
  settle();
  EXPECT_THAT(text(), HasSubstr("record with --record stats"));
}

// A window of 200 pixels has room for some 130 of the 400 columns. One FP16 value overflowed in one step.
TEST(NarrowWindow, OneBadStepIsSeen) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("body", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  for (uint64_t step = 0; step < 400; ++step) {
    std::vector<double> values(100, 1);
    if (step == 277) values[3] = 1e6;
    trace.add(tensor, analyzers_test::make_row(values, DType::f16));
    trace.end_step();
  }
  trace.read();
  ViewModel model({trace.path()}, open, false);
  for (int width = 200; width < 260; width += 7) {
    Headless host(width, 500, 1, true);
    ViewState state;
    state.view = View::ranges;
    state.quantity = Measured::overflowed;
    App app(model, host.textures(), state);
    for (int i = 0; i < 3; ++i) {
      model.wait();
      host.run(app);
    }
    ASSERT_EQ(model.results()->matrix->series.at(0).y.size(), 400u);
    const Image image = host.draw(app);
    const ImU32 bad = map_color(place_on_map(0.01, Unit::share, 0, 0), false);
    const Rectangle* const plot = app.names().find("plot overflowed");
    ASSERT_TRUE(plot);
    EXPECT_LT(plot->to.x - plot->from.x, 300);
    const auto y = static_cast<size_t>(app.names().find("overflowed row 0")->middle().y);
    const auto row = image.pixels.begin() + static_cast<ptrdiff_t>(y * static_cast<size_t>(width));
    const auto found = std::find(row, row + width, bad);
    ASSERT_NE(found, row + width) << width;
    const double step = (static_cast<double>(found - row) - static_cast<double>(plot->from.x)) /
                        static_cast<double>(plot->to.x - plot->from.x) * 400;
    EXPECT_NEAR(step, 277, 8) << "and it is where it was";
  }
}

class SmallAppTest : public AppTest {
 protected:
  SmallAppTest() : AppTest(RecordLevel::stats, 200, 150) {}
};

TEST_F(SmallAppTest, ASmallWindowShowsWhatFits) {
  for (int i = 0; i < kViews; ++i) {
    app_.state().view = static_cast<View>(i);
    app_.state().tensor = model_.results()->tensors->at(0);
    settle();
    const Image& image = host_.draw(app_);
    EXPECT_EQ(image.pixels.size(), 200u * 150u);
  }
}

}  // namespace
}  // namespace ulpscope::gui
