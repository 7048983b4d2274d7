// A number in every format: its bits, which can be flipped, its neighbours, and the error of its rounding.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/verbs/float_explanation.h"
#include "ulpscope/base/error.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/gui/reports.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

// A row of the table of formats.
struct Encoded {
  const FloatFormat* format;
  uint64_t bits;
  std::string text;  // "0x3C00"
};

std::vector<Encoded> encoded_in(const Report& report) {
  std::vector<Encoded> all;
  for (const Table& table : report.tables) {
    for (const TableRow& row : table.rows) {
      const auto* name = std::get_if<std::string>(&row.cells.at(0));
      const auto* encoding = std::get_if<std::string>(&row.cells.at(2));
      const FloatFormat* const format = name ? find_format(*name) : nullptr;
      if (!format || !encoding || encoding->size() < 3) continue;
      uint64_t bits = 0;
      std::from_chars(encoding->data() + 2, encoding->data() + encoding->size(), bits, 16);
      all.push_back({format, bits, *encoding});
    }
  }
  return all;
}

int sign_bits(const FloatFormat& format) { return format.is_signed ? 1 : 0; }

class Number : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    ImGui::SetNextItemWidth(20 * ImGui::GetFontSize());
    take_field_keys(canvas);
    ImGui::InputTextWithHint("##number", "0.1, 65504, 0x1.8p-3, 0x3C00, fp16:0x3C00", &canvas.state->number);
    canvas.names->add_item("number");
    constexpr const char* kMeaning = "a number, which is rounded to each format, or an encoding, which is read in its own";
    go_on_beside(0, kMeaning);
    say(kMeaning);
    if (!is_there(results.number, results, "the number")) return;
    const std::vector<Encoded> all = encoded_in(*results.number);
    if (!all.empty()) {
      take_keys(canvas, all);
      show_bits(canvas, all);
      for (const bool up : {false, true}) {
        const std::string label = fmt::format("next {} in {}", up ? "above" : "below", all[row_].format->name);
        if (ImGui::Button(label.c_str())) step(canvas, all[row_], up);
        canvas.names->add_item(up ? "next above" : "next below");
        if (!up) ImGui::SameLine();
      }
      constexpr const char* kHands = "A click flips a bit, as do arrows and Enter.";
      go_on_beside(0, kHands);
      say(kHands);
    }
    show_report(canvas, *results.number);
  }

 private:
  static int width_of(const FloatFormat& format) { return sign_bits(format) + format.exponent_bits + format.fraction_bits; }

  void take_keys(const Canvas& canvas, const std::vector<Encoded>& all) {
    row_ = std::min(row_, all.size() - 1);
    if (canvas.hands) {
      if (const size_t row = canvas.hands->take_row(all.size(), row_); row != SIZE_MAX) row_ = row;
      bit_ -= std::exchange(canvas.hands->aside, 0);
    }
    bit_ = std::clamp(bit_, 0, width_of(*all[row_].format) - 1);
    if (!canvas.hands) return;
    if (std::exchange(canvas.hands->enters, false)) flip(canvas, all[row_], bit_);
    if (canvas.hands->next != 0) step(canvas, all[row_], std::exchange(canvas.hands->next, 0) > 0);
  }

  static void flip(const Canvas& canvas, const Encoded& number, int bit) {
    canvas.state->number =
        fmt::format("{}:{}", number.format->name, hexadecimal_encoding(*number.format, number.bits ^ (uint64_t{1} << bit)));
  }
  static void step(const Canvas& canvas, const Encoded& number, bool up) {
    const std::string next = next_encoding(*number.format, number.text, up);
    if (!next.empty()) canvas.state->number = fmt::format("{}:{}", number.format->name, next);
  }

  void show_bits(const Canvas& canvas, const std::vector<Encoded>& all) {
    const Theme& theme = *canvas.theme;
    const float line = ImGui::GetTextLineHeight(), left = std::floor(5 * ImGui::GetFontSize()), gap = std::floor(0.4F * line);
    int widest = 0;
    for (const Encoded& number : all) widest = std::max(widest, width_of(*number.format));
    const float room = ImGui::GetContentRegionAvail().x - left - 3 * gap;
    const float cell = std::floor(std::clamp(room / static_cast<float>(widest), 3.0F, 1.1F * line));
    ImDrawList& list = *ImGui::GetWindowDrawList();
    for (size_t row = 0; row < all.size(); ++row) {
      const Encoded& number = all[row];
      const FloatFormat& format = *number.format;
      const int bits = width_of(format);
      const ImVec2 at = ImGui::GetCursorScreenPos();
      ImGui::InvisibleButton(std::string(format.name).c_str(), {left + static_cast<float>(bits) * cell + 2 * gap, 1.15F * line});
      const bool is_hovered = ImGui::IsItemHovered();
      if (row == row_) list.AddRectFilled(at, {at.x + left - 2, at.y + 1.1F * line}, with_alpha(theme.accent, 70));
      list.AddText({at.x + 2, at.y}, row == row_ ? theme.text : theme.dim, format.name.data(),
                   format.name.data() + format.name.size());
      const ImVec2 mouse = ImGui::GetIO().MousePos;
      float x = at.x + left;
      for (int bit = bits - 1; bit >= 0; --bit) {
        const bool is_sign = bit >= format.exponent_bits + format.fraction_bits, is_fraction = bit < format.fraction_bits;
        const bool is_set = ((number.bits >> bit) & 1) != 0;
        const Rectangle box{{x, at.y + 1}, {x + cell - 1, at.y + 1.1F * line}};
        const ImU32 color = theme.series[is_sign ? 1 : is_fraction ? 0 : 2];
        if (is_set)
          list.AddRectFilled(box.from, box.to, color);
        else
          list.AddRect(box.from, box.to, color);
        if (cell > 0.6F * line) {
          const ImVec2 size = ImGui::CalcTextSize(is_set ? "1" : "0");
          list.AddText({std::round(box.middle().x - size.x / 2), std::round(box.middle().y - size.y / 2)},
                       is_set ? theme.plot : theme.dim, is_set ? "1" : "0");
        }
        if (row == row_ && bit == bit_)
          list.AddRect({box.from.x - 1, box.from.y - 1}, {box.to.x + 1, box.to.y + 1}, theme.text, 0, 0, 2);
        canvas.names->add(fmt::format("{} bit {}", format.name, bit), box);
        if (is_hovered && mouse.x >= box.from.x && mouse.x < box.from.x + cell) {
          ImGui::SetTooltip("%s, bit %d: %s\nclick: flip it", std::string(format.name).c_str(), bit,
                            is_sign       ? "sign"
                            : is_fraction ? "fraction"
                                          : "exponent");
          if (ImGui::IsMouseReleased(0)) {
            row_ = row;
            bit_ = bit;
            flip(canvas, number, bit);
          }
        }
        x += cell;
        if (bit > 0 && (bit == format.fraction_bits || bit == format.exponent_bits + format.fraction_bits)) x += gap;
      }
    }
  }

  size_t row_ = 0;  // that keys are for, and which of its bits
  int bit_ = 0;
};

}  // namespace

std::unique_ptr<ViewPanel> make_number() { return std::make_unique<Number>(); }

}  // namespace ulpscope::gui
