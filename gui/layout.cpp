#include "ulpscope/gui/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/parse_number.h"

namespace ulpscope::gui {

namespace {

constexpr int kLeastWidth = 200, kLeastHeight = 150, kMostPixels = 16384;
constexpr size_t kMostBytes = 4096;

}  // namespace

std::filesystem::path layout_path() {
  const auto from = [](const char* variable) {
    const char* const value = std::getenv(variable);
    const std::filesystem::path path = value ? value : "";
    return path.is_absolute() ? path : std::filesystem::path();  // relative ones mean nothing, says the XDG specification
  };
  if (const std::filesystem::path state = from("XDG_STATE_HOME"); !state.empty()) return state / "ulpscope" / "window";
  if (const std::filesystem::path home = from("HOME"); !home.empty()) return home / ".local" / "state" / "ulpscope" / "window";
  return {};
}

Layout read_layout(const std::filesystem::path& path) {
  Layout layout;
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return layout;
  std::string text = first_bytes(path.string(), kMostBytes);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank), value = blank == std::string::npos ? "" : line.substr(blank + 1);
    const auto pixels = [&](int& kept, int least) {
      if (const std::optional<int> read = parse_number<int>(value); read && *read >= least && *read <= kMostPixels) kept = *read;
    };
    if (name == "width") {
      pixels(layout.width, kLeastWidth);
    } else if (name == "height") {
      pixels(layout.height, kLeastHeight);
    } else if (name == "view" || name == "quantity" || name == "order" || name == "limits" || name == "flat" || name == "true" ||
               name == "light") {
      try {
        set(layout.state, name, value);
      } catch (const Error&) {
        continue;  // of another version, or broken
      }
    }
  }
  return layout;
}

void write_layout(const std::filesystem::path& path, const Layout& layout) {
  if (path.empty()) return;
  const ViewState& state = layout.state;
  std::string text =
      fmt::format("width {}\nheight {}\nview {}\nquantity {}\norder {}\n", layout.width, layout.height, name_of(state.view),
                  ulpscope::name_of(state.quantity), state.order == TensorOrder::worst ? "worst" : "execution");
  if (!state.format.empty()) text += fmt::format("limits {}\n", state.format);
  if (state.is_flat) text += "flat\n";
  if (state.is_true) text += "true\n";
  if (state.is_light) text += "light\n";
  try {
    std::filesystem::create_directories(path.parent_path());
    atomic_write_file(path, text);
  } catch (const std::exception&) {
    return;  // the next window is a new one
  }
}

}  // namespace ulpscope::gui
