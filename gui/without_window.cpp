// What a build without Dear ImGui, GLFW, OpenGL or libpng says in place of a window.
#include "ulpscope/base/error.h"
#include "ulpscope/gui/window.h"

namespace ulpscope::gui {

namespace {

Error no_window() {
  return failed_error(
      "this build has no window: it was configured without Dear ImGui, GLFW, OpenGL or libpng; `ulpscope report --format html` "
      "needs none of them");
}

}  // namespace

Layout run_window(std::vector<std::string>, ViewModel::Open, const Layout&, const std::function<void()>&) { throw no_window(); }

std::string screenshot(std::vector<std::string>, ViewModel::Open, const ViewState&, const ScreenshotSize&) { throw no_window(); }

}  // namespace ulpscope::gui
