// The window's content, whatever draws it: head, views, foot, the keys, and the box that finds anything. A host calls frame()
// between ImGui::NewFrame and ImGui::Render.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "ulpscope/gui/canvas.h"
#include "ulpscope/gui/view_model.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

class App {
 public:
  App(ViewModel& model, Textures& textures, const ViewState& state, float scale = 1);
  ~App();

  void frame();

  ViewState& state() { return state_; }
  const Register& names() const { return names_; }
  // The command line that shows the same.
  std::string command(const char* verb = "view") const;
  bool wants_to_close() const { return closes_; }

 private:
  void show_head(const Canvas& canvas, const Results& results);
  void show_foot(const Results& results);
  void go_to(const ViewState& state);
  void take_keys(const Results& results);
  void go_to_anomaly(const Results& results, bool forward);
  void show_finder(const Results& results);
  void show_keys();

  ViewModel& model_;
  Textures& textures_;
  ViewState state_, last_state_;  // the last one: of the frame before
  ViewHistory history_;
  Register names_;
  Kept kept_;
  const float scale_;
  bool is_light_applied_ = false, finds_ = false, shows_keys_ = false, closes_ = false;
  std::string sought_;
  std::array<std::unique_ptr<ViewPanel>, kViews> panels_;
};

}  // namespace ulpscope::gui
