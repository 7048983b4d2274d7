#include "ulpscope/base/error.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/window.h"

namespace ulpscope::gui {

std::string screenshot(std::vector<std::string> paths, ViewModel::Open open, const ViewState& state, const ScreenshotSize& size) {
  ViewModel model(std::move(paths), std::move(open), false);
  model.ask(state);
  model.wait();
  model.check();
  if (const auto unknown = model.results()->unknown_name; unknown && !unknown->empty()) throw usage_error("{}", *unknown);
  Headless host(size.width, size.height, size.scale, size.own_font);
  App app(model, host.textures(), state, size.scale);
  // ImGui lays out what it drew in the frame before, and modules around the selected tensor unfold one by one.
  constexpr int kFrames = 3, kMostFrames = 64;
  std::string shown;
  for (int same = 0, frame = 0; same < kFrames && frame < kMostFrames; ++frame) {
    host.run(app);
    model.wait();
    const std::string now = app.command();
    same = now == shown ? same + 1 : 1;
    shown = now;
  }
  return png_of(host.draw(app));
}

}  // namespace ulpscope::gui
