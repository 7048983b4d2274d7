// What plots draw, read from their pixels.
#include "ulpscope/gui/plots.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "synthetic_trace.h"
#include "ulpscope/gui/app.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/raster.h"

namespace ulpscope::gui {
namespace {

using analyzers_test::SyntheticTrace;

// A plot by itself.
struct Shown {
  Register names;
  ViewState state;
  Hands hands;
  Image image;
  int vertices = 0;

  Shown(const Plot& plot, const StepRange& recorded, int width, int height, const PlotLook& look = {}, const ViewState& shown = {},
        const Hands& keys = {})
      : state(shown), hands(keys), image{width, height, {}} {
    image.pixels.assign(static_cast<size_t>(width) * static_cast<size_t>(height), theme(false).background);
    Headless host(width, height, 1, true);
    Kept kept;
    const Canvas canvas{&theme(false), &host.textures(), &names, &state, recorded, &kept, &hands};
    ImGui::NewFrame();
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize({static_cast<float>(width), static_cast<float>(height)});
    ImGui::Begin("window", nullptr, ImGuiWindowFlags_NoDecoration);
    show_plot(canvas, plot, look);
    ImGui::End();
    ImGui::Render();
    vertices = ImGui::GetDrawData()->TotalVtxCount;
    rasterize(*ImGui::GetDrawData(), image);
  }
};

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
  ViewModel model(
      {trace.path()}, [](const std::string& path) { return RunSet(path); }, false);
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

// Of twenty series the first six have colours of their own, the next twelve dashes or dots of these colours, and two are not drawn.
TEST(SeriesOfAPlot, AreToldApart) {
  constexpr int kWidth = 900, kHeight = 700;
  Plot plot;
  plot.name = "many";
  plot.title = "Many";
  plot.kind = PlotKind::steps;
  plot.x = {"step", Unit::count};
  plot.y = {"value", Unit::count};
  for (int i = 0; i < 20; ++i)
    plot.series.push_back({fmt::format("s{}", i), {}, {0, 50}, {i + 0.5, i + 0.5}});  // between the lines of the axis
  plot.x_end = 100;
  Shown shown(plot, {0, 100}, kWidth, kHeight, {.height = 650});
  const Image& image = shown.image;
  const Rectangle area = *shown.names.find("plot many");
  // The axis is that of what is drawn: of the first eighteen.
  for (int i = 0; i < 18; ++i) {
    const float y = area.to.y - 3 - (static_cast<float>(i) + 0.5F) / 17.5F * (area.to.y - area.from.y - 6);
    size_t drawn = 0, all = 0;
    for (auto x = static_cast<size_t>(area.from.x) + 5; x + 5 < static_cast<size_t>(area.to.x); ++x, ++all) {
      const ImU32* const at = &image.pixels[static_cast<size_t>(y) * kWidth + x];
      drawn += at[0] != theme(false).plot || at[kWidth] != theme(false).plot;
    }
    const double share = static_cast<double>(drawn) / static_cast<double>(all);
    // Lines of seven pixels in eleven, and of two in five; each end is smoothed into a pixel more.
    EXPECT_GE(share, i < 6 ? 0.99 : i < 12 ? 0.55 : i < 18 ? 0.3 : 0.0) << i;
    EXPECT_LE(share, i < 6 ? 1.0 : i < 12 ? 0.85 : i < 18 ? 0.85 : 0.01) << i;
  }
}

// What holds for a million steps is not drawn beyond the one that is shown, dash by dash.
TEST(SeriesOfAPlot, AreDrawnAsFarAsTheyAreSeen) {
  Plot plot{"long", "Long", PlotKind::steps, {"step", Unit::count}, {"value", Unit::count}};
  for (int i = 0; i < 18; ++i) plot.series.push_back({fmt::format("s{}", i), {}, {0, 500000}, {i + 0.5, i + 1.0}});
  plot.x_end = 1e6;
  ViewState one_step;
  one_step.steps = {500000, 500001};
  EXPECT_LT(Shown(plot, {0, 1000000}, 900, 700, {}, one_step).vertices, 40000);
}

// Keys go along the way of a NaN past what is no tensor, as the loss.
TEST(Graphs, KeysPassWhatIsNoTensor) {
  Plot plot{"way", "Way", PlotKind::graph};
  plot.nodes = {{"a", "", {}, true}, {"the loss", "", {}, true}, {"b", "", {}, true}};
  plot.nodes[0].key.name = "a";
  plot.nodes[2].key.name = "b";
  plot.links = {{0, 1, true}, {1, 2, true}};
  ViewState state;
  Hands down;
  down.down = 1;
  for (const char* expected : {"a", "b", "b"}) {
    state = Shown(plot, {0, 10}, 500, 500, {}, state, down).state;
    EXPECT_EQ(state.tensor, expected);
  }
}

// Whatever a report holds is drawn or left out.
TEST(Plots, OfAnythingAreDrawn) {
  for (const PlotKind kind : {PlotKind::histogram, PlotKind::steps, PlotKind::heatmap, PlotKind::graph}) {
    for (const bool is_exponents : {false, true}) {
      Plot plot{"any", "Any\nname", kind, {"step", Unit::count}, {"value", Unit::count}};
      if (is_exponents) plot.rows = {"exponent", Unit::exponent};
      plot.series = {{"short\ty", {}, {0, 1, 2, 3}, {1}},
                     {"short x", {}, {0}, {1, 2, 3}},
                     {"no places", {}, {NAN, INFINITY, -INFINITY}, {1, 2, 3}},
                     {"near", {}, {0, 5e-324, 1}, {1, 2, 3}},
                     {"far", {}, {-1e308, 1e308}, {-1e308, 1e308}},
                     {"", {}, {}, {}}};
      plot.limits = {{"limit", 3}, {"beyond", 100000}};
      plot.nodes = {{"a", "b", {}, true}, {"", "", {}, false}};
      plot.links = {{0, 1, true}, {1, 0, false}, {0, 7, true}, {9, 9, false}, {1, 1, true}};
      for (const StepRange& recorded : {StepRange{0, 0}, StepRange{0, 10}, StepRange{UINT64_MAX - 3, UINT64_MAX}})
        EXPECT_GT(Shown(plot, recorded, 300, 200).vertices, 0);
    }
  }
}

}  // namespace
}  // namespace ulpscope::gui
