// What commands use of the window: to open it, and to make pictures of it without one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulpscope/gui/layout.h"
#include "ulpscope/gui/view_model.h"
#include "ulpscope/gui/view_state.h"

namespace ulpscope::gui {

// Shows the traces until the window is closed; what it is then. `opened` is called once there is a window. Throws Error (failed)
// where there is no display or no OpenGL 3.
Layout run_window(std::vector<std::string> paths, ViewModel::Open open, const Layout& layout,
                  const std::function<void()>& opened = {});

// For benchmarks: seconds of each of so many frames of each state in a window of that size in pixels, from its layout until OpenGL
// has drawn it.
std::vector<std::vector<double>> time_window(std::vector<std::string> paths, ViewModel::Open open,
                                             const std::vector<ViewState>& states, int width, int height, int frames);

struct ScreenshotSize {
  int width = 1280, height = 800;
  float scale = 1;
  bool own_font = false;  // ImGui's own, which every build has
};
// A PNG file of what the window would show once all is read. Throws Error (unreadable) where the trace cannot be read, and Error
// (usage) where the state names what is not there.
std::string screenshot(std::vector<std::string> paths, ViewModel::Open open, const ViewState& state, const ScreenshotSize& size);

}  // namespace ulpscope::gui
