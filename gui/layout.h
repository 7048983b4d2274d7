// How the window looked when it was last closed: its size, and of the view state what is of no trace. Kept in a small text file.
#pragma once

#include <filesystem>

#include "ulpscope/gui/view_state.h"

namespace ulpscope::gui {

struct Layout {
  ViewState state;
  int width = 1280, height = 800;  // in pixels, of the whole window
};

// $XDG_STATE_HOME/ulpscope/window, or ~/.local/state/ulpscope/window; empty where neither is known.
std::filesystem::path layout_path();
// What cannot be read, or has no meaning, is as in a new window.
Layout read_layout(const std::filesystem::path& path);
// Where it cannot be written, nothing is.
void write_layout(const std::filesystem::path& path, const Layout& layout);

}  // namespace ulpscope::gui
