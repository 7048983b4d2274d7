#include "ulpscope/gui/raster.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ulpscope/base/error.h"

namespace ulpscope::gui {

namespace {

struct Clip {
  int left, top, right, bottom;  // right and bottom outside
};

constexpr uint32_t channel(ImU32 color, int shift) { return (color >> shift) & 0xFF; }
constexpr int kChannels[] = {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT};

// x / 255, rounded, of x up to 255 * 255.
constexpr uint32_t divide_255(uint32_t x) { return (x + 128 + ((x + 128) >> 8)) >> 8; }

void blend(ImU32& under, ImU32 color) {
  const uint32_t alpha = channel(color, IM_COL32_A_SHIFT);
  if (alpha == 0) return;
  if (alpha == 255) {
    under = color;
    return;
  }
  ImU32 mixed = IM_COL32_A_MASK;
  for (const int shift : kChannels)
    mixed |= divide_255(channel(color, shift) * alpha + channel(under, shift) * (255 - alpha)) << shift;
  under = mixed;
}

ImU32 multiply(ImU32 a, ImU32 b) {
  if (a == IM_COL32_WHITE) return b;
  if (b == IM_COL32_WHITE) return a;
  ImU32 product = 0;
  for (const int shift : {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT, IM_COL32_A_SHIFT})
    product |= divide_255(channel(a, shift) * channel(b, shift)) << shift;
  return product;
}

ImU32 sample(const Image& texture, float u, float v) {
  const int x = std::clamp(static_cast<int>(std::floor(u * static_cast<float>(texture.width))), 0, texture.width - 1);
  const int y = std::clamp(static_cast<int>(std::floor(v * static_cast<float>(texture.height))), 0, texture.height - 1);
  return texture.pixels[static_cast<size_t>(y) * static_cast<size_t>(texture.width) + static_cast<size_t>(x)];
}

class Raster {
 public:
  Raster(Image& onto, ImVec2 origin) : image_(onto), origin_(origin) {}

  void draw(const ImDrawList& list) {
    for (const ImDrawCmd& command : list.CmdBuffer) {
      if (command.UserCallback) continue;
      clip_ = {std::max(0, static_cast<int>(command.ClipRect.x - origin_.x)),
               std::max(0, static_cast<int>(command.ClipRect.y - origin_.y)),
               std::min(image_.width, static_cast<int>(command.ClipRect.z - origin_.x)),
               std::min(image_.height, static_cast<int>(command.ClipRect.w - origin_.y))};
      if (clip_.left >= clip_.right || clip_.top >= clip_.bottom) continue;
      texture_ = static_cast<const Image*>(command.GetTexID());
      const ImDrawIdx* const indices = list.IdxBuffer.Data + command.IdxOffset;
      const ImDrawVert* const vertices = list.VtxBuffer.Data + command.VtxOffset;
      for (unsigned i = 0; i + 2 < command.ElemCount; i += 3) {
        if (i + 5 < command.ElemCount && is_rectangle(indices + i, vertices)) {
          draw_rectangle(vertices[indices[i]], vertices[indices[i + 2]]);
          i += 3;
        } else {
          draw_triangle(vertices[indices[i]], vertices[indices[i + 1]], vertices[indices[i + 2]]);
        }
      }
    }
  }

 private:
  // Two triangles a b c, a c d that are a rectangle of one colour, as ImGui makes of filled rectangles, glyphs and images.
  static bool is_rectangle(const ImDrawIdx* indices, const ImDrawVert* vertices) {
    if (indices[3] != indices[0] || indices[4] != indices[2]) return false;
    const ImDrawVert &a = vertices[indices[0]], &b = vertices[indices[1]], &c = vertices[indices[2]], &d = vertices[indices[5]];
    return a.pos.y == b.pos.y && b.pos.x == c.pos.x && c.pos.y == d.pos.y && d.pos.x == a.pos.x && a.col == b.col &&
           b.col == c.col && c.col == d.col && a.uv.y == b.uv.y && b.uv.x == c.uv.x && c.uv.y == d.uv.y && d.uv.x == a.uv.x;
  }

  ImU32* row(int y) { return image_.pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(image_.width); }

  // Pixels whose middles lie inside.
  void draw_rectangle(const ImDrawVert& a, const ImDrawVert& c) {
    const float x0 = std::min(a.pos.x, c.pos.x) - origin_.x, x1 = std::max(a.pos.x, c.pos.x) - origin_.x;
    const float y0 = std::min(a.pos.y, c.pos.y) - origin_.y, y1 = std::max(a.pos.y, c.pos.y) - origin_.y;
    const int left = std::max(clip_.left, first_middle(x0)), right = std::min(clip_.right, first_middle(x1));
    const int top = std::max(clip_.top, first_middle(y0)), bottom = std::min(clip_.bottom, first_middle(y1));
    if (left >= right || top >= bottom) return;
    const bool is_plain = a.uv.x == c.uv.x && a.uv.y == c.uv.y;
    if (is_plain) {
      const ImU32 color = multiply(a.col, sample(*texture_, a.uv.x, a.uv.y));
      for (int y = top; y < bottom; ++y) {
        ImU32* const pixels = row(y);
        for (int x = left; x < right; ++x) blend(pixels[x], color);
      }
      return;
    }
    const bool flips_x = a.pos.x > c.pos.x, flips_y = a.pos.y > c.pos.y;
    const float u0 = flips_x ? c.uv.x : a.uv.x, v0 = flips_y ? c.uv.y : a.uv.y;
    const float du = ((flips_x ? a.uv.x : c.uv.x) - u0) / (x1 - x0), dv = ((flips_y ? a.uv.y : c.uv.y) - v0) / (y1 - y0);
    for (int y = top; y < bottom; ++y) {
      ImU32* const pixels = row(y);
      const float v = v0 + (static_cast<float>(y) + 0.5F - y0) * dv;
      for (int x = left; x < right; ++x)
        blend(pixels[x], multiply(a.col, sample(*texture_, u0 + (static_cast<float>(x) + 0.5F - x0) * du, v)));
    }
  }

  static int first_middle(float edge) { return static_cast<int>(std::ceil(std::clamp(edge, -1e6F, 1e6F) - 0.5F)); }

  void draw_triangle(const ImDrawVert& p, const ImDrawVert& q, const ImDrawVert& r) {
    const std::array<const ImDrawVert*, 3> corner{&p, &q, &r};
    std::array<float, 3> x{}, y{};
    for (size_t i = 0; i < 3; ++i) {
      x[i] = std::clamp(corner[i]->pos.x - origin_.x, -1e5F, 1e5F);
      y[i] = std::clamp(corner[i]->pos.y - origin_.y, -1e5F, 1e5F);
    }
    const float area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0]);
    if (area == 0 || std::isnan(area)) return;
    const float turn = area > 0 ? 1.0F : -1.0F;
    const int left = std::max(clip_.left, first_middle(*std::min_element(x.begin(), x.end())));
    const int right = std::min(clip_.right, first_middle(*std::max_element(x.begin(), x.end())) + 1);
    const int top = std::max(clip_.top, first_middle(*std::min_element(y.begin(), y.end())));
    const int bottom = std::min(clip_.bottom, first_middle(*std::max_element(y.begin(), y.end())) + 1);
    const bool is_plain_color = p.col == q.col && q.col == r.col;
    const bool is_plain_texture = p.uv.x == q.uv.x && p.uv.y == q.uv.y && q.uv.x == r.uv.x && q.uv.y == r.uv.y;
    const ImU32 texel = is_plain_texture ? sample(*texture_, p.uv.x, p.uv.y) : 0;
    for (int py = top; py < bottom; ++py) {
      ImU32* const pixels = row(py);
      for (int px = left; px < right; ++px) {
        const float mx = static_cast<float>(px) + 0.5F, my = static_cast<float>(py) + 0.5F;
        std::array<float, 3> weight{};
        bool inside = true;
        for (size_t i = 0; i < 3 && inside; ++i) {
          const size_t from = (i + 1) % 3, to = (i + 2) % 3;
          const float dx = x[to] - x[from], dy = y[to] - y[from];
          weight[i] = turn * (dx * (my - y[from]) - dy * (mx - x[from]));
          // An edge belongs to one of the two triangles that share it: the one below or right of it.
          const bool owns_edge = turn * dy < 0 || (dy == 0 && turn * dx > 0);
          inside = weight[i] > 0 || (weight[i] == 0 && owns_edge);
        }
        if (!inside) continue;
        const float whole = turn * area;
        const ImU32 color = is_plain_color ? p.col : mixed_color(corner, weight, whole);
        ImU32 texture = texel;
        if (!is_plain_texture) {
          float u = 0, v = 0;
          for (size_t i = 0; i < 3; ++i) {
            u += corner[i]->uv.x * weight[i] / whole;
            v += corner[i]->uv.y * weight[i] / whole;
          }
          texture = sample(*texture_, u, v);
        }
        blend(pixels[px], multiply(color, texture));
      }
    }
  }

  static ImU32 mixed_color(const std::array<const ImDrawVert*, 3>& corner, const std::array<float, 3>& weight, float whole) {
    ImU32 color = 0;
    for (const int shift : {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT, IM_COL32_A_SHIFT}) {
      float mixed = 0;
      for (size_t i = 0; i < 3; ++i) mixed += static_cast<float>(channel(corner[i]->col, shift)) * weight[i] / whole;
      color |= static_cast<ImU32>(std::clamp(std::lround(mixed), 0L, 255L)) << shift;
    }
    return color;
  }

  Image& image_;
  const ImVec2 origin_;
  Clip clip_{};
  const Image* texture_ = nullptr;
};

}  // namespace

void rasterize(const ImDrawData& data, Image& onto) {
  Raster raster(onto, data.DisplayPos);
  for (int i = 0; i < data.CmdListsCount; ++i) raster.draw(*data.CmdLists[i]);
}

std::string png_of(const Image& image) {
  std::vector<png_byte> bytes;
  bytes.reserve(image.pixels.size() * 3);
  for (const ImU32 pixel : image.pixels)
    for (const int shift : kChannels) bytes.push_back(static_cast<png_byte>(channel(pixel, shift)));
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  if (!png_image_write_to_memory(&header, nullptr, &size, 0, bytes.data(), 0, nullptr))
    throw failed_error("cannot make a PNG file: {}", header.message);
  std::string file(size, '\0');
  if (!png_image_write_to_memory(&header, file.data(), &size, 0, bytes.data(), 0, nullptr))
    throw failed_error("cannot make a PNG file: {}", header.message);
  file.resize(size);
  return file;
}

}  // namespace ulpscope::gui
