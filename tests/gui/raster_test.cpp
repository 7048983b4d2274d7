// Triangles as pixels: each pixel of a shape is covered once, by what is in front, clipped, and PNG files hold the same colours.
#include "ulpscope/gui/raster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <random>

namespace ulpscope::gui {
namespace {

// Drawn by itself, without a context.
struct Scene {
  explicit Scene(int size)
      : image{size, size, std::vector<ImU32>(static_cast<size_t>(size) * static_cast<size_t>(size), IM_COL32_BLACK)} {
    white.width = white.height = 1;
    white.pixels = {IM_COL32_WHITE};
    clip = {0, 0, static_cast<float>(size), static_cast<float>(size)};
  }
  void triangle(ImVec2 a, ImVec2 b, ImVec2 c, ImU32 color) {
    for (const ImVec2 at : {a, b, c}) {
      list.IdxBuffer.push_back(static_cast<ImDrawIdx>(list.VtxBuffer.Size));
      list.VtxBuffer.push_back({at, {0.5F, 0.5F}, color});
    }
  }
  const Image& draw() {
    ImDrawCmd command;
    command.ClipRect = clip;
    command.TextureId = &white;
    command.ElemCount = static_cast<unsigned>(list.IdxBuffer.Size);
    list.CmdBuffer.push_back(command);
    ImDrawList* lists[] = {&list};
    ImDrawData data;
    data.CmdLists = lists;
    data.CmdListsCount = 1;
    rasterize(data, image);
    return image;
  }
  ImDrawList list{nullptr};
  Image white, image;
  ImVec4 clip;
};

TEST(Raster, TrianglesThatShareEdgesCoverEachPixelOnce) {
  // A fan around a point in half transparent white: a pixel that two triangles drew would be brighter, one that none did darker.
  std::mt19937 random(5);
  std::uniform_real_distribution<float> place(12, 52);
  for (int round = 0; round < 50; ++round) {
    Scene scene(64);
    const ImVec2 middle{place(random), place(random)};
    const std::vector<ImVec2> corners{{2, 2}, {33.3F, 1}, {62, 2}, {62.5F, 40}, {62, 62}, {20, 63}, {2, 62}, {1.2F, 31}};
    for (size_t i = 0; i < corners.size(); ++i)
      scene.triangle(middle, corners[i], corners[(i + 1) % corners.size()], IM_COL32(255, 255, 255, 128));
    const Image& image = scene.draw();
    for (int y = 3; y < 61; ++y)
      for (int x = 3; x < 61; ++x)
        ASSERT_EQ(image.pixels[static_cast<size_t>(y) * 64 + static_cast<size_t>(x)], IM_COL32(128, 128, 128, 255))
            << x << " " << y;
  }
}

TEST(Raster, NothingIsDrawnBeyondTheClipOrTheImage) {
  Scene scene(16);
  scene.clip = {4, 5, 9, 11};
  scene.triangle({-1e9F, -1e9F}, {1e9F, -1e9F}, {0, 1e9F}, IM_COL32(255, 0, 0, 255));
  scene.triangle({NAN, 3}, {5, NAN}, {INFINITY, 2}, IM_COL32(0, 255, 0, 255));
  const Image& image = scene.draw();
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 16; ++x) {
      if (x >= 4 && x < 9 && y >= 5 && y < 11) continue;
      EXPECT_EQ(image.pixels[static_cast<size_t>(y) * 16 + static_cast<size_t>(x)], IM_COL32_BLACK);
    }
  }
}

TEST(Raster, PngFilesHoldTheColours) {
  Image image{3,
              2,
              {IM_COL32(1, 2, 3, 255), IM_COL32_WHITE, IM_COL32(255, 0, 0, 255), IM_COL32(0, 255, 0, 255), IM_COL32(0, 0, 255, 255),
               IM_COL32_BLACK}};
  const std::string file = png_of(image);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_memory(&header, file.data(), file.size()));
  header.format = PNG_FORMAT_RGBA;
  std::vector<ImU32> read(6);
  ASSERT_EQ(PNG_IMAGE_SIZE(header), read.size() * 4);
  ASSERT_TRUE(png_image_finish_read(&header, nullptr, read.data(), 0, nullptr));
  EXPECT_EQ(read, image.pixels);
}

}  // namespace
}  // namespace ulpscope::gui
