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
  Headless host(kWidth, kHeight, 1, true);
  ViewState state;
  Register names;
  Kept kept;
  Hands hands;
  const Canvas canvas{&theme(false), &host.textures(), &names, &state, {0, 100}, &kept, &hands};
  ImGui::NewFrame();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize({kWidth, kHeight});
  ImGui::Begin("window", nullptr, ImGuiWindowFlags_NoDecoration);
  show_plot(canvas, plot, {.height = 650});
  ImGui::End();
  ImGui::Render();
  Image image{kWidth, kHeight, std::vector<ImU32>(size_t{kWidth} * kHeight, theme(false).background)};
  rasterize(*ImGui::GetDrawData(), image);
  const Rectangle area = *names.find("plot many");
  for (int i = 0; i < 20; ++i) {
    const float y = area.to.y - 3 - (static_cast<float>(i) + 0.5F) / 19.5F * (area.to.y - area.from.y - 6);
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

}  // namespace
}  // namespace ulpscope::gui
