// Each view, drawn with Dear ImGui's own font, is the picture that golden/ has of it, but for a few pixels; a wrong colour is seen.
// ULPSCOPE_REMAKE_GOLDEN=1 writes them anew: look at each of them then.
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "synthetic_trace.h"
#include "tests/gui/open_run.h"
#include "tests/support/project_files.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/theme.h"
#include "ulpscope/gui/window.h"

namespace ulpscope::gui {
namespace {

using analyzers_test::SyntheticTrace;

constexpr int kWidth = 560, kHeight = 360;
// Lines and letters may lie a rounding aside where another compiler made the program.
constexpr int kSameChannel = 8;
constexpr size_t kFewPixels = 8;

// Powers of two around 2^center, of both signs: exact wherever they are computed.
std::vector<double> powers(int center, int spread, uint64_t salt) {
  std::vector<double> values;
  for (uint64_t i = 0; i < 64; ++i) {
    const int away = static_cast<int>((i * 7919 + salt * 104729) % static_cast<uint64_t>(2 * spread + 1)) - spread;
    values.push_back(std::ldexp(i % 3 == 0 ? -1.0 : 1.0, center + away));
  }
  return values;
}

// A run whose gradients sink under FP16, and which has infinities from step 30 on where `breaks`.
void write_run(const std::string& path, bool breaks) {
  SyntheticTrace trace;
  const uint32_t hidden = trace.add_tensor("body.0", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t loss_gradient =
      trace.add_tensor("head", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t weight_gradient =
      trace.add_tensor("body.0", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16, "body.0.weight");
  const uint32_t weight = trace.add_tensor("body.0", "adam", Phase::optimizer, Role::weight, DType::f32, "body.0.weight");
  for (uint64_t step = 0; step < 48; ++step) {
    const bool is_bad = breaks && step >= 30;
    std::vector<double> activations = powers(0, 3, step), gradients = powers(-12 - static_cast<int>(step) / 4, 8, step);
    if (is_bad) activations[5] = gradients[5] = INFINITY;
    trace.add(hidden, analyzers_test::make_row(activations, DType::f16));
    trace.add(loss_gradient, analyzers_test::make_row(gradients, DType::f16, 1024));
    trace.add(weight_gradient, analyzers_test::make_row(powers(-16, 5, step), DType::f16, 1024));
    trace.add(weight, analyzers_test::make_row(powers(-3, 2, step), DType::f32));
    trace.add_update(weight, 64, step, 0);
    StepRow row = SyntheticTrace::default_step(is_bad ? NAN : 4.0 / static_cast<double>(step + 1), 1024);
    row.seconds = 0.01;
    row.skipped = is_bad;
    if (breaks && step == 30) {
      row.scale_after = 512;
      trace.add_event(EventKind::scale_backoff, loss_gradient, 1, 512);
    }
    trace.end_step(row);
  }
  trace.read();
  std::filesystem::copy_file(trace.path(), path);
}

struct Picture {
  const char* name;
  std::vector<std::string> paths;
  ViewState state;
};

std::vector<Picture> pictures() {
  const auto state = [](View view, const std::function<void(ViewState&)>& change = {}) {
    ViewState made;
    made.view = view;
    if (change) change(made);
    return made;
  };
  const auto selected = [](ViewState& made) {
    made.tensor = "head linear_backward";
    made.step = 12;
  };
  const std::vector<std::string> whole{"run.h5"}, broken{"broken.h5"}, both{"run.h5", "broken.h5"};
  return {
      {"overview", broken, state(View::overview)},
      {"overview_light", whole, state(View::overview, [](ViewState& made) { made.is_light = true; })},
      {"ranges", broken, state(View::ranges)},
      {"ranges_light", whole,
       state(View::ranges,
             [&](ViewState& made) {
               selected(made);
               made.scale = 4;
               made.is_light = true;
             })},
      {"timeline", broken,
       state(View::timeline,
             [](ViewState& made) {
               made.steps = {20, 40};
             })},
      {"why_nan", broken, state(View::why_nan)},
      {"step", broken, state(View::step, selected)},
      {"updates_light", whole, state(View::updates, [](ViewState& made) { made.is_light = true; })},
      {"compare", both, state(View::compare)},
      {"number", whole, state(View::number)},
  };
}

Image decoded(const std::string& bytes) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  Image image;
  if (!png_image_begin_read_from_memory(&header, bytes.data(), bytes.size())) return image;
  header.format = PNG_FORMAT_RGBA;
  image.width = static_cast<int>(header.width);
  image.height = static_cast<int>(header.height);
  image.pixels.resize(static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
  png_image_finish_read(&header, nullptr, image.pixels.data(), 0, nullptr);
  return image;
}

// Pixels of which a channel is another one; all, where the sizes differ.
size_t different_pixels(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.pixels.empty()) return SIZE_MAX;
  size_t different = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    bool is_other = false;
    for (const int shift : {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT})
      is_other = is_other || std::abs(static_cast<int>((a.pixels[i] >> shift) & 0xFF) -
                                      static_cast<int>((b.pixels[i] >> shift) & 0xFF)) > kSameChannel;
    different += is_other;
  }
  return different;
}

std::string golden_path(const std::string& name) { return project_file("tests/gui/golden/" + name + ".png"); }

class Golden : public ::testing::Test {
 protected:
  // What views say of a trace has its path: one that is the same everywhere.
  void SetUp() override {
    write_run(folder_.file("run.h5"), false);
    write_run(folder_.file("broken.h5"), true);
    std::filesystem::current_path(folder_.path());
  }
  void TearDown() override { std::filesystem::current_path(before_); }
  static std::string draw(const Picture& picture) {
    return screenshot(picture.paths, open_run, picture.state, {kWidth, kHeight, 1, true});
  }

 private:
  TemporaryFolder folder_;
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(Golden, ViewsAreTheirPictures) {
  const bool remakes = std::getenv("ULPSCOPE_REMAKE_GOLDEN");
  if (!remakes && IMGUI_VERSION_NUM != 18600) GTEST_SKIP() << "the pictures were made with Dear ImGui 1.86, this is " IMGUI_VERSION;
  for (const Picture& picture : pictures()) {
    const std::string bytes = draw(picture);
    if (remakes) {
      write_file(golden_path(picture.name), bytes);
      continue;
    }
    const size_t different = different_pixels(decoded(bytes), decoded(read_file(golden_path(picture.name))));
    EXPECT_LE(different, kFewPixels) << picture.name << " is another picture than tests/gui/golden has";
    if (different > kFewPixels) write_file(::testing::TempDir() + picture.name + ".png", bytes);
  }
}

// Each colour that means something, changed wherever it is: the comparison fails.
TEST_F(Golden, AWrongColourIsSeen) {
  const Picture overview = pictures().at(0), ranges = pictures().at(2);
  const auto with = [](Image image, ImU32 color, ImU32 other) {
    std::replace(image.pixels.begin(), image.pixels.end(), color, other);
    return image;
  };
  const Theme& dark = theme(false);
  const Image drawn = decoded(draw(overview));
  EXPECT_EQ(different_pixels(drawn, drawn), 0u);
  for (const ImU32 color : {dark.error, dark.warning, dark.series[0], dark.text, dark.dim})
    EXPECT_GT(different_pixels(drawn, with(drawn, color, dark.good)), kFewPixels) << std::hex << color;
  // One cell of a heatmap: that of the largest share, and of the steps beside it with the same one.
  const Image heat = decoded(draw(ranges));
  std::map<ImU32, size_t> colors;
  for (const ImU32 pixel : heat.pixels) ++colors[pixel];
  size_t cells = 0;
  for (int i = 0; i <= 1000; ++i) {
    const ImU32 color = map_color(i / 1000.0, false);
    if (colors[color] < 2 * kFewPixels) continue;
    ++cells;
    EXPECT_GT(different_pixels(heat, with(heat, color, dark.plot)), kFewPixels);
  }
  EXPECT_GT(cells, 3u) << "the heatmap has cells of several colours";
}

}  // namespace
}  // namespace ulpscope::gui
