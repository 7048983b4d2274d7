// The window's content, whatever draws it: head, views, foot, the keys, and the box that finds anything. A host calls frame()
// between ImGui::NewFrame and ImGui::Render.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  // Where the host is to write a picture of what it draws next, or "". Asked for once.
  std::string take_wanted_picture();
  // Shown at the foot until something else is: what was copied, or why not.
  void say(std::string notice) { notice_ = std::move(notice); }
  // The command line that shows the same.
  std::string command(const char* verb = "view") const;
  bool wants_to_close() const { return closes_; }

 private:
  // What can be asked for by its name, and by keys.
  struct Command {
    std::string name, key;
    std::function<void()> run;
  };
  std::vector<Command> commands(const Results& results);
  // What the finder shows: of what is there what contains the text that is sought.
  struct Offer {
    std::string text, key;
    std::function<void()> take;
  };
  std::vector<Offer> find_offers(const Results& results);
  void copy_text(const Results& results);
  void copy_csv(const Results& results);
  void copy_command();
  void want_picture();
  void undo();
  void redo();
  void show_all();
  void zoom(const Results& results, bool in);
  void focus(const Results& results);
  void open_finder();

  void show_views(bool is_narrow);
  void show_copy_menu(const Results& results);
  void show_head(const Canvas& canvas, const Results& results);
  void show_foot(const Results& results);
  void go_to(const ViewState& state);
  void take_keys(const Results& results);
  void go_to_anomaly(const Results& results, bool forward);
  void show_finder(const Results& results);
  void show_keys();
  void reveal();

  ViewModel& model_;
  Textures& textures_;
  ViewState state_, last_state_;  // the last one: of the frame before
  ViewHistory history_;
  Register names_;
  Kept kept_;
  Hands hands_;
  const float scale_;
  bool is_light_applied_ = false, finds_ = false, shows_keys_ = false, closes_ = false;
  std::string sought_, notice_, wanted_picture_;
  std::string revealed_;                 // a tensor that was selected, until the modules around it are unfolded
  int offered_ = 0, pointed_offer_ = 0;  // of the finder, in the last frame
  std::array<std::unique_ptr<ViewPanel>, kViews> panels_;
};

// Writes a PNG file, and says in the window that it did, or why not.
void save_picture(App& app, const std::string& path, const Image& image);

}  // namespace ulpscope::gui
