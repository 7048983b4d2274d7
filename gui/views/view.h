// One class a view: what is between the window's head and its foot. Views draw what was read, and change the state; they compute
// nothing.
#pragma once

#include <memory>

#include "ulpscope/gui/canvas.h"
#include "ulpscope/gui/view_model.h"

namespace ulpscope::gui {

class ViewPanel {
 public:
  virtual ~ViewPanel() = default;
  virtual void show(const Canvas& canvas, const Results& results) = 0;
};

std::unique_ptr<ViewPanel> make_overview();
std::unique_ptr<ViewPanel> make_ranges();
std::unique_ptr<ViewPanel> make_timeline();
std::unique_ptr<ViewPanel> make_why_nan();
std::unique_ptr<ViewPanel> make_step();
std::unique_ptr<ViewPanel> make_updates();
std::unique_ptr<ViewPanel> make_compare();
std::unique_ptr<ViewPanel> make_number();

// A piece that is still being read, or will not be: says so, and what to do. True iff the piece is there.
template <typename Piece>
bool is_there(const std::shared_ptr<const Piece>& piece, const Results& results, const char* what);

// False, and says so, where the trace has no step.
bool has_steps(const Results& results);

void say_missing(const Results& results, const char* what);

template <typename Piece>
bool is_there(const std::shared_ptr<const Piece>& piece, const Results& results, const char* what) {
  if (piece) return true;
  say_missing(results, what);
  return false;
}

// In dim letters, in as many lines as it takes.
void say(const char* text);

// The next widget, so wide and with that label behind it, stands beside the last one where there is room.
void go_on_beside(float width, const char* label = "");

// Before the view's field for text: keys may ask to write into it.
void take_field_keys(const Canvas& canvas);

// The plot of that name, or nullptr.
const Plot* find_plot(const std::vector<Plot>& plots, const char* name);

}  // namespace ulpscope::gui
