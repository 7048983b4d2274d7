#include "ulpscope/gui/theme.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

namespace ulpscope::gui {

namespace {

// 0xRRGGBB, opaque.
constexpr ImU32 rgb(uint32_t color) { return IM_COL32((color >> 16) & 0xFF, (color >> 8) & 0xFF, color & 0xFF, 0xFF); }

// Okabe and Ito's colours for qualitative data (Color Universal Design, 2008), which differ for all kinds of colour vision.
constexpr Theme kDark{false,
                      rgb(0x14161A),
                      rgb(0x1C1F25),
                      rgb(0xD9DDE3),
                      rgb(0x8C95A3),
                      rgb(0x333944),
                      rgb(0x56B4E9),
                      rgb(0x4FB286),
                      rgb(0xE69F00),
                      rgb(0xF0624D),
                      rgb(0x23262D),
                      rgb(0x101215),
                      {rgb(0x56B4E9), rgb(0xE69F00), rgb(0x4FB286), rgb(0xCC79A7), rgb(0xF0E442), rgb(0xD55E00)}};
constexpr Theme kLight{true,
                       rgb(0xF6F7F9),
                       rgb(0xFFFFFF),
                       rgb(0x1F242C),
                       rgb(0x646D7A),
                       rgb(0xD5DAE1),
                       rgb(0x0072B2),
                       rgb(0x1B7F56),
                       rgb(0xA86200),
                       rgb(0xC33A24),
                       rgb(0xE6E9ED),
                       rgb(0xFFFFFF),
                       {rgb(0x0072B2), rgb(0xC77700), rgb(0x1B7F56), rgb(0xA8537F), rgb(0x8A7D00), rgb(0xD55E00)}};

// Stops of a map from dark blue over purple and orange to yellow; of equal steps in lightness (L* 12 to 94), about.
constexpr std::array<std::array<int, 3>, 7> kStops{
    {{24, 26, 66}, {68, 33, 118}, {122, 39, 126}, {178, 54, 112}, {226, 89, 83}, {249, 149, 72}, {251, 222, 120}}};

void set(ImGuiCol index, ImU32 color) { ImGui::GetStyle().Colors[index] = ImGui::ColorConvertU32ToFloat4(color); }

}  // namespace

ImU32 with_alpha(ImU32 color, int alpha) { return (color & ~IM_COL32_A_MASK) | (static_cast<ImU32>(alpha) << IM_COL32_A_SHIFT); }

const Theme& theme(bool is_light) { return is_light ? kLight : kDark; }

void apply(const Theme& theme, float scale) {
  ImGuiStyle& style = ImGui::GetStyle();
  style = ImGuiStyle();
  if (theme.is_light)
    ImGui::StyleColorsLight();
  else
    ImGui::StyleColorsDark();
  style.WindowRounding = 0;
  style.FrameRounding = 3;
  style.PopupRounding = 4;
  style.ScrollbarRounding = 3;
  style.FramePadding = {7, 3};
  style.ItemSpacing = {7, 5};
  style.CellPadding = {6, 2};
  style.WindowPadding = {10, 8};
  style.WindowBorderSize = 0;
  style.FrameBorderSize = theme.is_light ? 1.0F : 0.0F;
  style.ScaleAllSizes(scale);
  set(ImGuiCol_Text, theme.text);
  set(ImGuiCol_TextDisabled, theme.dim);
  set(ImGuiCol_WindowBg, theme.background);
  set(ImGuiCol_ChildBg, with_alpha(theme.background, 0));
  set(ImGuiCol_PopupBg, theme.panel);
  set(ImGuiCol_Border, theme.grid);
  set(ImGuiCol_FrameBg, theme.is_light ? theme.panel : theme.unknown);
  set(ImGuiCol_FrameBgHovered, with_alpha(theme.accent, 50));
  set(ImGuiCol_FrameBgActive, with_alpha(theme.accent, 90));
  set(ImGuiCol_Button, with_alpha(theme.dim, 40));
  set(ImGuiCol_ButtonHovered, with_alpha(theme.accent, 90));
  set(ImGuiCol_ButtonActive, with_alpha(theme.accent, 140));
  set(ImGuiCol_Header, with_alpha(theme.accent, 60));
  set(ImGuiCol_HeaderHovered, with_alpha(theme.accent, 90));
  set(ImGuiCol_HeaderActive, with_alpha(theme.accent, 120));
  set(ImGuiCol_SliderGrab, theme.accent);
  set(ImGuiCol_SliderGrabActive, theme.accent);
  set(ImGuiCol_CheckMark, theme.accent);
  set(ImGuiCol_Separator, theme.grid);
  set(ImGuiCol_TableHeaderBg, theme.panel);
  set(ImGuiCol_TableBorderLight, theme.grid);
  set(ImGuiCol_TableBorderStrong, theme.grid);
  set(ImGuiCol_TableRowBgAlt, with_alpha(theme.dim, 14));
  set(ImGuiCol_ScrollbarBg, with_alpha(theme.background, 0));
  set(ImGuiCol_NavHighlight, theme.accent);
}

ImU32 map_color(double share, bool is_light) {
  double place = std::clamp(share, 0.0, 1.0);
  if (is_light) place = 1 - place;  // nothing is near the paper's colour in either theme
  const double at = place * (kStops.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double part = at - static_cast<double>(low);
  std::array<int, 3> color{};
  for (size_t i = 0; i < 3; ++i) color[i] = static_cast<int>(std::lround(kStops[low][i] * (1 - part) + kStops[low + 1][i] * part));
  return IM_COL32(color[0], color[1], color[2], 255);
}

double place_on_map(double value, Unit unit, double lowest, double highest) {
  switch (unit) {
    case Unit::share:
      return value <= 0 ? -1 : std::max(0.0, 1 + std::log10(value) / 6);
    case Unit::bits:
      return std::clamp(1 - value / 16, 0.0, 1.0);
    case Unit::count:
      return value <= 0 ? -1 : highest <= 1 ? 1 : 0.1 + 0.9 * std::log(value) / std::log(highest);
    default:
      return highest > lowest ? (value - lowest) / (highest - lowest) : 0.5;
  }
}

void load_font(ImFontAtlas& atlas, bool own, float pixels) {
  static constexpr std::array kPlaces{"/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
                                      "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
                                      "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
                                      "/usr/share/fonts/TTF/DejaVuSans.ttf", "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf"};
  // Latin, Greek, punctuation, superscripts, arrows, mathematical operators, blocks and shapes.
  static constexpr std::array<ImWchar, 19> kRanges{0x20,   0xFF,   0x370,  0x3FF,  0x2010, 0x205E, 0x2070, 0x209C, 0x2190, 0x21FF,
                                                   0x2200, 0x22FF, 0x2580, 0x25FF, 0x2713, 0x2717, 0xFFFD, 0xFFFD, 0};
  for (const char* place : kPlaces) {
    if (!own && std::filesystem::is_regular_file(place) &&
        atlas.AddFontFromFileTTF(place, std::round(pixels), nullptr, kRanges.data()))
      return;
  }
  ImFontConfig config;
  config.SizePixels = std::max(1.0F, std::round(pixels / 13)) * 13;  // it is drawn for 13 pixels
  atlas.AddFontDefault(&config);
}

}  // namespace ulpscope::gui
