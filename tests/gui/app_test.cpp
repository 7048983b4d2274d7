// The window's content, driven as a hand does: the pointer and keys go in, and the state, the places of things and the text that
// is shown come out.
#include "ulpscope/gui/app.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "app_fixture.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/verbs/what_if_report.h"
#include "ulpscope/base/file.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/key_queue.h"
#include "ulpscope/gui/keys.h"
#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/raster.h"

namespace ulpscope::gui {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  for (const Cause& cause : report.causes) EXPECT_THAT(overview, HasSubstr(report.findings[cause.finding].title.text()));
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
  ASSERT_GE(steps.size(), 2u);
  const auto before = std::find_if(steps.rbegin(), steps.rend(), [&](uint64_t step) { return step < steps.back(); });
  ASSERT_NE(before, steps.rend());
  key(Key::comma);
  EXPECT_EQ(*app_.state().step, *before);
}

TEST_F(AppTest, ATensorIsFoundByItsName) {
  key(Key::p, true);
  host_.type("body linear_b");
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

// The tensors follow the scale, each cell as it is looked up; at the scale that was, they are as recorded.
TEST_F(AppTest, TensorsFollowTheLossScale) {
  app_.state().view = View::ranges;
  app_.state().is_flat = true;
  app_.state().scale = 10;
  settle();
  ASSERT_TRUE(follows_scale(app_.state(), *model_.results()));
  const Plot recorded = *model_.results()->matrix;
  const auto value_told = [&](size_t row) {
    const Rectangle line = place(fmt::format("flushed row {}", row)), plot = place("plot flushed");
    host_.move_to({plot.from.x + (plot.to.x - plot.from.x) * 0.205F, line.middle().y});  // step 20
    host_.run(app_);
    const std::string told = text();
    host_.move_to({-1, -1});
    return told;
  };
  for (const int k : {10, 0, 20}) {
    app_.state().scale = k;
    host_.run(app_);
    const Plot shown = model_.results()->scaled->at(k);
    for (size_t row = 0; row < 2; ++row) {
      EXPECT_EQ(shown.series[row].name, recorded.series[row].name);
      if (k == 10) {
        EXPECT_EQ(shown.series[row].y[20], recorded.series[row].y[20]);
      }
      EXPECT_THAT(value_told(row), HasSubstr("flushed: " + value_text(shown.series[row].y[20], Unit::share))) << k;
    }
    EXPECT_THAT(text(), HasSubstr(fmt::format("had the loss scale been 2^{}", k)));
  }
  EXPECT_NE(model_.results()->scaled->at(0).series[0].y[20], recorded.series[0].y[20]);
  // What no scale changes stays as it was.
  app_.state().quantity = Measured::headroom;
  settle();
  EXPECT_FALSE(follows_scale(app_.state(), *model_.results()));
  EXPECT_THAT(text(), Not(HasSubstr("had the loss scale been 2^")));
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
        host_.key(number_of(static_cast<Key>(pick(static_cast<int>(Key::plus) + 1))), pick(2) == 0, pick(3) == 0, pick(3) == 0);
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

// A module of two gradients and, in one of its own, another; and a tensor of no module.
std::string make_modules(SyntheticTrace& trace) {
  std::mt19937 random(5);
  std::vector<uint32_t> tensors;
  for (const char* module : {"features.0", "features.0", "features.1.norm", ""})
    tensors.push_back(trace.add_tensor(module, tensors.size() == 1 ? "relu_backward" : "linear_backward", Phase::backward,
                                       Role::activation_gradient, DType::f16));
  for (uint64_t step = 0; step < 20; ++step) {
    for (size_t i = 0; i < tensors.size(); ++i)
      trace.add(tensors[i], analyzers_test::make_row(analyzers_test::lognormal(random, -20 + 2 * static_cast<double>(i), 4, 100),
                                                     DType::f16, 1024));
    trace.end_step(SyntheticTrace::default_step(1, 1024));
  }
  trace.read();
  return trace.path();
}

class ModulesAppTest : public AppTest {
 protected:
  ModulesAppTest() : AppTest(make_modules) {
    app_.state().view = View::ranges;
    settle();
  }
  std::vector<std::string> rows() const {
    std::vector<std::string> names;
    for (const Series& row : model_.results()->matrix->series) names.push_back(row.name);
    return names;
  }
};

// A row of a module is of all elements in it, and what it hides can be unfolded with the pointer, with keys, and by options.
TEST_F(ModulesAppTest, ModulesAreRowsThatFold) {
  const std::vector<std::string>& tensors = *model_.results()->tensors;
  EXPECT_THAT(rows(), ElementsAre("features", "features.0", tensors[0], tensors[1], tensors[2], tensors[3]));
  const Plot open = *model_.results()->matrix;
  for (size_t column = 0; column < 20; ++column) {
    uint64_t flushed = 0, base = 0;
    Snapshot(trace_.path()).visit_rows({column, column + 1}, [&](std::span<const TensorRow> some) {
      for (const TensorRow& row : some) {
        if (row.tensor > 1) continue;
        flushed += row.rounding.flushed;
        base += row.statistics.count - row.statistics.zeros - row.statistics.nan - row.statistics.infinities();
      }
      return true;
    });
    EXPECT_DOUBLE_EQ(open.series[1].y[column], static_cast<double>(flushed) / static_cast<double>(base)) << column;
  }
  // On the name of the module.
  const Rectangle row = place("flushed row 1");
  click(ImVec2(row.from.x + 30, row.middle().y));
  EXPECT_THAT(rows(), ElementsAre("features", "features.0", tensors[2], tensors[3]));
  EXPECT_EQ(model_.results()->matrix->series[1].y, open.series[1].y) << "folded, it says the same";
  EXPECT_THAT(app_.command(), HasSubstr("--fold features.0"));
  EXPECT_EQ(app_.state().module, "features.0");
  key(Key::right);
  EXPECT_EQ(rows().size(), 6u) << "unfolded";
  EXPECT_FALSE(app_.state().step) << "the key was for the module";
  key(Key::up);
  key(Key::enter);
  EXPECT_THAT(rows(), ElementsAre("features", tensors[3]));
  key(Key::down);
  EXPECT_EQ(app_.state().tensor, tensors[3]);
  EXPECT_EQ(app_.state().module, "");
  key(Key::right);
  EXPECT_EQ(app_.state().step, 1u) << "of a tensor it is the next step";
  key(Key::z, true);
  key(Key::z, true);
  key(Key::z, true);
  EXPECT_EQ(rows().size(), 6u) << "what was folded is undone";
  // One that is found by its name is seen, however deep in folded modules it lies.
  app_.state().folded = {"features", "features.0"};
  settle();
  EXPECT_THAT(rows(), ElementsAre("features", tensors[3]));
  // The folded module in which the selected tensor lies is marked.
  app_.state().tensor = tensors[1];
  app_.state().folded = {"features", "features.0"};
  app_.state().view = View::overview;
  settle();
  EXPECT_EQ(app_.state().folded.size(), 2u);
  app_.state().view = View::ranges;
  settle();
  EXPECT_EQ(app_.state().folded.size(), 0u) << "what was selected elsewhere is unfolded";
  toggle_fold(app_.state(), "features.0");
  settle();
  EXPECT_THAT(rows(), ElementsAre("features", "features.0", tensors[2], tensors[3]));
  const Image image = host_.draw(app_);
  const auto border_of = [&](const std::string& name) {
    const Rectangle at = *app_.names().find(name);
    return image.pixels[static_cast<size_t>(at.middle().y) * static_cast<size_t>(image.width) + static_cast<size_t>(at.from.x)];
  };
  EXPECT_EQ(border_of("flushed row 1"), theme(false).accent);
  EXPECT_NE(border_of("flushed row 0"), theme(false).accent);
  app_.state().folded = {"features", "features.0"};
  settle();
  key(Key::p, true);
  host_.type(tensors[1]);
  settle();
  key(Key::enter);
  settle();
  EXPECT_EQ(app_.state().tensor, tensors[1]);
  EXPECT_THAT(rows(), ElementsAre("features", "features.0", tensors[0], tensors[1], tensors[2], tensors[3]));
  key(Key::escape);
  click("in modules");
  EXPECT_THAT(rows(), ElementsAre(tensors[0], tensors[1], tensors[2], tensors[3]));
}

// What is copied is what the command line prints of the same report, and all digits of what a plot shows.
TEST_F(AppTest, WhatIsShownIsCopied) {
  key(Key::c, true);
  EXPECT_THAT(std::string(ImGui::GetClipboardText()), HasSubstr(verdict_line(*model_.results()->report)));
  for (const Table& table : model_.results()->report->tables)
    EXPECT_THAT(std::string(ImGui::GetClipboardText()), HasSubstr(table.title));
  app_.state().view = View::timeline;
  settle();
  key(Key::e, true);
  const std::string csv = ImGui::GetClipboardText();
  const Series& loss = model_.results()->course->front().series.front();
  for (size_t i = 0; i < loss.x.size(); i += 9)
    EXPECT_THAT(csv, HasSubstr(fmt::format("{},{},{}\n", loss.name, loss.x[i], loss.y[i])));
  for (int i = 0; i < kViews; ++i) {
    app_.state().view = static_cast<View>(i);
    app_.state().tensor = model_.results()->tensors->at(0);
    settle();
    ImGui::SetClipboardText("");
    key(Key::c, true);
    EXPECT_THAT(std::string(ImGui::GetClipboardText()), Not("")) << title_of(app_.state().view);
    ImGui::SetClipboardText("");
    key(Key::e, true);
    // Of one trace there is nothing to compare.
    if (app_.state().view != View::compare) {
      EXPECT_THAT(std::string(ImGui::GetClipboardText()), Not("")) << title_of(app_.state().view);
    }
    key(Key::l, true);
    EXPECT_EQ(ImGui::GetClipboardText(), app_.command());
  }
}

TEST_F(AppTest, APictureIsWritten) {
  EXPECT_EQ(app_.take_wanted_picture(), "");
  key(Key::s, true);
  const std::string name = app_.take_wanted_picture();
  EXPECT_EQ(name, "ulpscope-overview-1.png");
  EXPECT_EQ(app_.take_wanted_picture(), "") << "asked for once";
  const std::string path = trace_.path() + ".png";
  const Image& drawn = host_.draw(app_);
  save_picture(app_, path, drawn);
  EXPECT_EQ(first_bytes(path, 1 << 24), png_of(drawn));
  settle();
  EXPECT_THAT(text(), HasSubstr("wrote " + path));
  save_picture(app_, "/nowhere/at/all.png", drawn);
  settle();
  EXPECT_THAT(text(), HasSubstr("/nowhere/at/all.png"));
}

// The pointer's other button copies one plot, of those that scroll too.
TEST_F(AppTest, APlotIsCopied) {
  for (const char* name : {"plot flushed", "plot loss"}) {
    app_.state().view = name == std::string("plot loss") ? View::timeline : View::ranges;
    settle();
    host_.move_to(place(name).middle());
    host_.run(app_);
    host_.press(true, 1);
    host_.run(app_);
    host_.press(false, 1);
    host_.run(app_);
    settle();
    EXPECT_THAT(text(), HasSubstr("Copy as CSV")) << name;
    key(Key::escape);
    click(ImVec2(1, 1));
  }
}

// Rows of whatever a view shows first are gone through with keys: findings, tensors, ops.
TEST_F(AppTest, KeysGoFromRowToRow) {
  key(Key::down);
  EXPECT_NE(app_.state().tensor, "") << "the first finding is about one";
  app_.state() = {};
  for (const View view : {View::ranges, View::step, View::updates, View::why_nan}) {
    app_.state().view = view;
    app_.state().tensor.clear();
    settle();
    key(Key::down);
    if (view == View::updates) continue;  // nothing was recorded of any
    EXPECT_NE(app_.state().tensor, "") << title_of(view);
    key(Key::down);
    key(Key::up);
    EXPECT_NE(app_.state().tensor, "") << title_of(view);
  }
  app_.state().view = View::ranges;
  app_.state().tensor.clear();
  settle();
  const std::vector<Series>& rows = model_.results()->matrix->series;
  key(Key::up);
  EXPECT_EQ(app_.state().tensor, rows.back().name);
  key(Key::up);
  EXPECT_EQ(app_.state().tensor, rows.front().name);
  key(Key::up);
  EXPECT_EQ(app_.state().tensor, rows.front().name) << "there is none above";
}

// A click, or keys, lead from a finding to the view that shows where and when it was.
TEST_F(AppTest, FindingsLeadToWhereTheyWere) {
  const Report& report = *model_.results()->report;
  const auto finding = std::find_if(report.findings.begin(), report.findings.end(),
                                    [](const Finding& each) { return each.code == "range.gradients_flushed"; });
  ASSERT_NE(finding, report.findings.end());
  ASSERT_FALSE(finding->evidence.empty());
  app_.state().quantity = Measured::headroom;
  click(fmt::format("finding {}", finding - report.findings.begin()));
  EXPECT_EQ(app_.state().view, View::ranges);
  EXPECT_EQ(app_.state().quantity, Measured::flushed);
  EXPECT_EQ(app_.state().tensor, finding->evidence.front().key.name);
  key(Key::z, true);
  EXPECT_EQ(app_.state().view, View::overview) << "and back";
  app_.state().tensor.clear();
  settle();
  for (int i = 0; i < 20 && app_.state().tensor != finding->evidence.front().key.name; ++i) key(Key::down);
  key(Key::enter);
  EXPECT_NE(app_.state().view, View::overview);
}

// A run of one step with so many tensors that a table shows some of them only.
std::string make_many(SyntheticTrace& trace) {
  std::mt19937 random(8);
  std::vector<uint32_t> tensors;
  for (int i = 0; i < 120; ++i)
    tensors.push_back(trace.add_tensor(fmt::format("layer{}", i), "linear", Phase::forward, Role::activation, DType::f16));
  for (const uint32_t tensor : tensors)
    trace.add(tensor, analyzers_test::make_row(analyzers_test::lognormal(random, 0, 2, 20), DType::f16));
  trace.end_step();
  trace.read();
  return trace.path();
}

class ManyAppTest : public AppTest {
 protected:
  ManyAppTest() : AppTest(make_many) {}
};

TEST_F(ManyAppTest, WhatIsSelectedElsewhereIsBroughtIntoView) {
  app_.state().view = View::step;
  settle();
  EXPECT_TRUE(app_.names().find("table step row 0"));
  EXPECT_FALSE(app_.names().find("table step row 100"));
  app_.state().tensor = model_.results()->tensors->at(100);
  settle();
  EXPECT_TRUE(app_.names().find("table step row 100"));
  const Rectangle row = place("table step row 100");
  host_.move_to(row.middle());
  host_.wheel(30);
  for (int i = 0; i < 20; ++i) host_.run(app_);
  host_.move_to({-1, -1});
  settle();
  EXPECT_FALSE(app_.names().find("table step row 100")) << "once: then the wheel leads away from it";
  key(Key::down);
  EXPECT_EQ(app_.state().tensor, model_.results()->tensors->at(101));
  EXPECT_TRUE(app_.names().find("table step row 101"));
  app_.state().view = View::ranges;
  app_.state().order = TensorOrder::execution;
  app_.state().tensor.clear();
  settle();
  EXPECT_FALSE(app_.names().find("flushed row 90"));
  app_.state().tensor = model_.results()->tensors->at(90);
  settle();
  EXPECT_TRUE(app_.names().find("flushed row 90"));
}

TEST_F(AppTest, KeysLeadIntoTheFieldForText) {
  app_.state().view = View::ranges;
  settle();
  key(Key::tab);
  host_.type("body");
  settle();
  EXPECT_EQ(app_.state().filter, "body");
  EXPECT_EQ(model_.results()->matrix->series.size(), 1u);
}

TEST_F(AppTest, AWindowIsClosedWithAKey) {
  EXPECT_FALSE(app_.wants_to_close());
  key(Key::q, true);
  EXPECT_TRUE(app_.wants_to_close());
}

// Keys that went down and came up before a frame was drawn, in any order: each chord is one.
TEST_F(AppTest, ShortChordsAreSeen) {
  KeyQueue queue;
  bool control = false;
  const int ctrl = -1;
  const auto frames = [&](std::initializer_list<KeyEvent> events) {
    for (const KeyEvent& event : events) queue.add(event);
    do {
      queue.give([&](const KeyEvent& event) {
        const bool down = event.kind == KeyEvent::Kind::down;
        if (event.kind == KeyEvent::Kind::text)
          host_.type(std::string(1, static_cast<char>(event.character)));
        else if (event.key == ctrl)
          ImGui::GetIO().KeyCtrl = control = down;
        else
          host_.key(event.key, down, control);
      });
      host_.run(app_);
    } while (!queue.is_empty());
    settle();
  };
  const auto down = [](int key) { return KeyEvent{KeyEvent::Kind::down, key}; };
  const auto up = [](int key) { return KeyEvent{KeyEvent::Kind::up, key}; };
  const int z = number_of(Key::z), two = number_of(Key::digit_1) + 1, three = two + 1;
  frames({down(two), up(two), down(three), up(three)});
  ASSERT_EQ(app_.state().view, View::timeline);
  frames({down(ctrl), down(z), up(z), up(ctrl)});
  EXPECT_EQ(app_.state().view, View::ranges);
  frames({down(ctrl), down(z), up(ctrl), up(z)});
  EXPECT_EQ(app_.state().view, View::overview);
  frames({down(two), up(two), down(three), up(three)});
  // Held for two of them.
  frames({down(ctrl), down(z), up(z), down(z), up(z), up(ctrl)});
  EXPECT_EQ(app_.state().view, View::overview);
  frames({down(ctrl)});
  frames({down(number_of(Key::y)), up(ctrl), up(number_of(Key::y))});
  EXPECT_EQ(app_.state().view, View::ranges);
}

// Whatever has a name can be reached with the keyboard alone.
TEST_F(AppTest, CommandsAreFoundByTheirNames) {
  const auto run = [&](const std::string& sought) {
    key(Key::p, true);
    host_.type(sought);
    settle();
    key(Key::enter);
    settle();
  };
  run("light colours");
  EXPECT_TRUE(app_.state().is_light);
  run("ranges: headroom");
  EXPECT_EQ(app_.state().view, View::ranges);
  EXPECT_EQ(app_.state().quantity, Measured::headroom);
  run("limits of bf16");
  EXPECT_EQ(app_.state().format, "bf16");
  run("linear_backward, backward");
  EXPECT_EQ(app_.state().view, View::step);
  EXPECT_EQ(app_.state().tensor, model_.results()->tensors->at(0));
  // Arrows go from one of those that are found to the next.
  key(Key::p, true);
  host_.type("linear_backward, backward");
  settle();
  key(Key::down);
  key(Key::enter);
  EXPECT_EQ(app_.state().tensor, model_.results()->tensors->at(1));
  key(Key::q);
  EXPECT_EQ(app_.state().quantity, Measured::largest_exponent);
  key(Key::q, false, true);
  EXPECT_EQ(app_.state().quantity, Measured::headroom);
}

// The bits of a number are what `float` says of it; flipped with the pointer or with keys they make the number that has them.
TEST_F(AppTest, BitsAreFlipped) {
  app_.state().view = View::number;
  app_.state().number = "1";
  settle();
  const auto encoding = [&](const std::string& format) {
    for (const TableRow& row : model_.results()->number->tables.at(0).rows)
      if (row.cells[0] == Cell(format)) return std::get<std::string>(row.cells[2]);
    return std::string();
  };
  EXPECT_EQ(encoding("fp16"), "0x3C00");
  click("fp16 bit 9");  // the largest of the fraction
  EXPECT_EQ(app_.state().number, "fp16:0x3E00");
  EXPECT_EQ(encoding("fp32"), "0x3FC00000") << "1.5";
  EXPECT_EQ(encoding("bf16"), "0x3FC0");
  click("bf16 bit 15");
  EXPECT_EQ(app_.state().number, "bf16:0xBFC0");
  EXPECT_EQ(encoding("fp16"), "0xBE00");
  // The row and the bit are those of the last click: one row up, fp16 again, and three bits to the right.
  key(Key::up);
  for (int i = 0; i < 3; ++i) key(Key::right);
  key(Key::enter);
  EXPECT_EQ(app_.state().number, "fp16:0xAE00") << "bit 12 of -1.5: -0.09375";
  EXPECT_EQ(encoding("fp64"), "0xBFB8000000000000");
  key(Key::n);
  EXPECT_EQ(app_.state().number, "fp16:0xADFF") << "towards zero, which is up";
  key(Key::n, false, true);
  EXPECT_EQ(app_.state().number, "fp16:0xAE00");
  EXPECT_FALSE(app_.state().step) << "arrows were for the bits";
  // Every encoding can be made, those that are no numbers too.
  app_.state().number = "fp16:0x7C00";
  settle();
  click("fp16 bit 3");
  EXPECT_EQ(encoding("fp16"), "0x7C08") << "a NaN keeps its payload";
  EXPECT_EQ(encoding("bf16"), "0x7FC0");
  click("next above");
  EXPECT_EQ(app_.state().number, "fp16:0x7C08") << "there is none";
  app_.state().number = "fp17:0x1";
  settle();
  EXPECT_THAT(model_.results()->failure, HasSubstr("fp17"));
  app_.state().number = "fp16:0x12345";
  settle();
  EXPECT_THAT(model_.results()->failure, HasSubstr("16 bits"));
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
    EXPECT_LT(place("more").to.y, 40) << "views and commands take one line, so that most of the window is the view's";
  }
  // Every view is in the list.
  app_.state().view = View::overview;
  settle();
  click("views");
  click("view number");
  EXPECT_EQ(app_.state().view, View::number);
}

// What the command line names and the trace has not is said in the window.
TEST_F(AppTest, UnknownNamesAreSaid) {
  EXPECT_EQ(app_.names().find("failure"), nullptr);
  app_.state().tensor = "gone";
  settle();
  EXPECT_THAT(text(), HasSubstr("no tensor 'gone'"));
  EXPECT_NE(app_.names().find("failure"), nullptr);
  app_.state().tensor.clear();
  app_.state().module = "boody";
  settle();
  EXPECT_THAT(text(), HasSubstr("did you mean 'body'"));
  app_.state().module = "body";
  settle();
  EXPECT_EQ(app_.names().find("failure"), nullptr);
}

// Numbers at an axis stand at their values, read from where the text was drawn.
TEST_F(AppTest, NumbersStandAtTheirValues) {
  app_.state().view = View::timeline;
  settle();
  const Rectangle plot = place("plot loss");
  std::vector<std::pair<double, float>> seen;  // value, middle
  for (const auto& [name, rectangle] : app_.names().all())
    if (constexpr std::string_view kValue = "loss value "; name.starts_with(kValue))
      seen.emplace_back(std::stod(name.substr(kValue.size())), rectangle.middle().y);
  ASSERT_GE(seen.size(), 2u);
  // Losses are 3, 3/2, 3/3 ... 3/100, which is no thousandth of the first: the axis is linear between these.
  constexpr double kLowest = 0.03, kHighest = 3;
  for (const auto& [value, y] : seen) {
    const double share = (value - kLowest) / (kHighest - kLowest);
    EXPECT_NEAR(y, static_cast<double>(plot.to.y) - 3 - share * static_cast<double>(plot.to.y - plot.from.y - 6), 0.51) << value;
  }
}

}  // namespace
}  // namespace ulpscope::gui
