// What views draw on, and with: the theme, the state that they show and change, pictures that are too fine for rectangles, and a
// register of where each thing that can be pointed at was drawn.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/gui/theme.h"
#include "ulpscope/gui/view_state.h"

namespace ulpscope::gui {

struct Rectangle {
  ImVec2 from, to;
  ImVec2 middle() const { return {(from.x + to.x) / 2, (from.y + to.y) / 2}; }
};

// At whole pixels.
void draw_text(ImDrawList& list, ImVec2 at, ImU32 color, const std::string& text);

// Of the last frame, by name: "view ranges", "matrix", "table tensors row 3". For tests, and for whoever drives the window.
class Register {
 public:
  void clear() { rectangles_.clear(); }
  void add(const std::string& name, Rectangle rectangle) { rectangles_[name] = rectangle; }
  // What was drawn last.
  void add_item(const std::string& name) { add(name, {ImGui::GetItemRectMin(), ImGui::GetItemRectMax()}); }
  const Rectangle* find(const std::string& name) const {
    const auto found = rectangles_.find(name);
    return found == rectangles_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Rectangle>& all() const { return rectangles_; }

 private:
  std::map<std::string, Rectangle> rectangles_;
};

// An image of colours as ImGui has them, row by row from the top.
struct Image {
  int width = 0, height = 0;
  std::vector<ImU32> pixels;
};

// Images that a host holds for its way of drawing.
class Textures {
 public:
  virtual ~Textures() = default;
  // The image of that name, which is made where the one that is held is of another version. It stays until the next one of the
  // name.
  ImTextureID get(const std::string& name, const std::string& version, const std::function<Image()>& make);

 private:
  virtual ImTextureID hold(const std::string& name, Image image) = 0;
  std::map<std::string, std::pair<std::string, ImTextureID>> held_;
};

// What was made of pieces of results, so that a frame need not make it again.
class Kept {
 public:
  // `owner` has the pieces that the frame asks about. What the last frame did not ask for is dropped.
  void begin_frame(std::shared_ptr<const void> owner);
  // What `make(number)` makes of `piece`, where none of that name was made of that piece and version. No two have the same number.
  template <typename Made, typename Make>
  const Made& get(const std::string& name, const void* piece, const std::string& version, Make&& make) {
    Entry& entry = entries_[name];
    if (entry.piece != piece || entry.version != version || !entry.made) {
      entry.made = std::make_shared<const Made>(make(++made_));
      entry.piece = piece;
      entry.version = version;
    }
    entry.owner = owner_;  // no other piece comes to lie where this one does
    entry.is_used = true;
    return *static_cast<const Made*>(entry.made.get());
  }

 private:
  struct Entry {
    const void* piece = nullptr;
    std::string version;
    std::shared_ptr<const void> owner, made;
    bool is_used = false;
  };
  std::map<std::string, Entry> entries_;
  std::shared_ptr<const void> owner_;
  uint64_t made_ = 0;
};

// What keys ask of the rows that a view shows: the first list of a view takes them.
struct Hands {
  int down = 0;   // so many rows down; negative: up
  int aside = 0;  // to the right, where what is selected has a right and a left; negative: to the left
  bool enters = false;
  int next = 0;                                  // the next number above; negative: below
  bool asks_field = false;                       // to write into the view's field for text
  bool asks_makers = false, asks_users = false;  // of the selected tensor

  // The row that is selected then, of so many; `selected`: the one that is, if any. SIZE_MAX: keys ask for none.
  size_t take_row(size_t rows, std::optional<size_t> selected);
};

// The text, or as much of it, with dots behind, as has room in so many pixels.
std::string fitted(const std::string& text, float width);
// The same of a name, with the dots in its middle: names of one model differ at their ends.
std::string fitted_name(const std::string& name, float width);

struct Canvas {
  const Theme* theme = nullptr;
  Textures* textures = nullptr;
  Register* names = nullptr;
  ViewState* state = nullptr;
  StepRange recorded = {0, 0};
  Kept* kept = nullptr;
  Hands* hands = nullptr;

  // The steps that a picture shows: those that were chosen, as far as there are some.
  StepRange shown() const;
  void show_steps(double first, double last) const;
};

}  // namespace ulpscope::gui
