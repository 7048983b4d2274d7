#include "ulpscope/gui/key_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ulpscope::gui {
namespace {

using ::testing::ElementsAre;

// Text comes with the keys that wrote it, and before the key that came after it.
TEST(KeyQueueTest, TextKeepsItsPlaceAmongKeys) {
  KeyQueue queue;
  for (const char c : {'a', 'b'}) {
    queue.add({KeyEvent::Kind::down, c});
    queue.add({.kind = KeyEvent::Kind::text, .character = static_cast<unsigned>(c)});
    queue.add({KeyEvent::Kind::up, c});
  }
  std::vector<std::string> frames;
  while (!queue.is_empty()) {
    std::string& frame = frames.emplace_back();
    queue.give([&](const KeyEvent& event) {
      frame += event.kind == KeyEvent::Kind::text   ? static_cast<char>(event.character)
               : event.kind == KeyEvent::Kind::down ? '+'
                                                    : '-';
    });
  }
  EXPECT_THAT(frames, ElementsAre("+a", "-", "+b", "-"));
}

}  // namespace
}  // namespace ulpscope::gui
