// What keys did since the last frame, given to frames so that none of it is lost: ImGui sees keys as they stand when a frame
// begins, so what goes down and comes up between two frames never was, and a chord whose control key came up first is another one.
#pragma once

#include <deque>

namespace ulpscope::gui {

struct KeyEvent {
  enum class Kind { down, up, text };
  Kind kind;
  int key = 0, scancode = 0, modifiers = 0;  // as the host has them
  unsigned character = 0;                    // of text
};

class KeyQueue {
 public:
  void add(const KeyEvent& event) { events_.push_back(event); }
  bool is_empty() const { return events_.empty(); }
  // Calls apply(event) for those of one frame: keys that go down, with the text they write, or keys that come up, but never both.
  template <typename Apply>
  void give(Apply&& apply) {
    bool downs = false, ups = false;
    while (!events_.empty()) {
      const KeyEvent event = events_.front();
      downs = downs || event.kind == KeyEvent::Kind::down;
      ups = ups || event.kind == KeyEvent::Kind::up;
      if (downs && ups) return;
      events_.pop_front();
      apply(event);
    }
  }

 private:
  std::deque<KeyEvent> events_;
};

}  // namespace ulpscope::gui
