#include "ulpscope/gui/canvas.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ulpscope::gui {

void draw_text(ImDrawList& list, ImVec2 at, ImU32 color, const std::string& text) {
  list.AddText({std::round(at.x), std::round(at.y)}, color, text.c_str(), text.c_str() + text.size());
}

ImTextureID Textures::get(const std::string& name, const std::string& version, const std::function<Image()>& make) {
  auto& [held, texture] = held_[name];
  if (held != version) {
    texture = hold(name, make());
    held = version;
  }
  return texture;
}

void Kept::begin_frame(std::shared_ptr<const void> owner) {
  owner_ = std::move(owner);
  std::erase_if(entries_, [](const auto& entry) { return !entry.second.is_used; });
  for (auto& [name, entry] : entries_) entry.is_used = false;
}

size_t Hands::take_row(size_t rows, std::optional<size_t> selected) {
  if (down == 0 || rows == 0) return SIZE_MAX;
  const auto last = static_cast<int64_t>(rows) - 1;
  const int64_t row = selected ? std::clamp<int64_t>(static_cast<int64_t>(*selected) + down, 0, last) : down > 0 ? 0 : last;
  down = 0;
  return static_cast<size_t>(row);
}

namespace {

constexpr size_t kMostFittedBytes = 2000;  // no display is so wide

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::string first_bytes(const std::string& text, size_t length) {
  while (length > 0 && length < text.size() && is_inside_character(text[length])) --length;
  return text.substr(0, length);
}

std::string last_bytes(const std::string& text, size_t length) {
  size_t from = text.size() - std::min(length, text.size());
  while (from < text.size() && is_inside_character(text[from])) ++from;
  return text.substr(from);
}

// Of `shortened(n)`, which is the longer the more bytes of the text n has, the longest that fits; all of the text where that does.
template <typename Shortened>
std::string longest_fitted(const std::string& text, float width, const Shortened& shortened) {
  if (text.size() <= kMostFittedBytes && ImGui::CalcTextSize(text.c_str()).x <= width) return text;
  size_t fits = 0, too_long = std::min(text.size(), kMostFittedBytes);
  while (too_long - fits > 1) {
    const size_t middle = fits + (too_long - fits) / 2;
    (ImGui::CalcTextSize(shortened(middle).c_str()).x <= width ? fits : too_long) = middle;
  }
  const std::string shorter = shortened(fits);
  return fits > 0 || ImGui::CalcTextSize(shorter.c_str()).x <= width ? shorter : "";
}

}  // namespace

std::string fitted(const std::string& text, float width) {
  return longest_fitted(text, width, [&](size_t bytes) { return first_bytes(text, bytes) + "..."; });
}

std::string fitted_name(const std::string& name, float width) {
  return longest_fitted(name, width, [&](size_t bytes) {
    const size_t end = bytes - bytes / 3;  // ends say more
    return first_bytes(name, bytes - end) + "..." + last_bytes(name, end);
  });
}

StepRange Canvas::shown() const {
  const StepRange shown{std::max(state->steps.first, recorded.first), std::min(state->steps.last, recorded.last)};
  return shown.last > shown.first ? shown : recorded;
}

void Canvas::show_steps(double first, double last) const {
  const auto within = [&](double step) {
    return static_cast<uint64_t>(
        std::clamp(std::round(step), static_cast<double>(recorded.first), static_cast<double>(recorded.last)));
  };
  StepRange steps{within(first), within(last)};
  if (steps.last <= steps.first) steps.last = steps.first + 1;
  const bool is_all = steps.first <= recorded.first && steps.last >= recorded.last;
  state->steps = is_all ? StepRange{} : steps;
}

}  // namespace ulpscope::gui
