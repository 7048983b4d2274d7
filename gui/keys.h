// Keys by what they are, in every version of Dear ImGui: before 1.87 hosts gave the numbers that GLFW has.
#pragma once

#include <imgui.h>

namespace ulpscope::gui {

enum class Key {
  w,
  a,
  s,
  d,
  f,
  p,
  z,
  y,
  period,
  comma,
  question,
  escape,
  left,
  right,
  digit_1,
  up,
  down,
  enter,
  space,
  tab,
  backspace,
  c,
  e,
  l,
  m,
  n,
  o,
  q,
  u,
  page_up,
  page_down,
  minus,
  plus
};

// Where `io.KeysDown` has it, or ImGuiKey.
inline int number_of(Key key) {
#if IMGUI_VERSION_NUM >= 18700
  constexpr int kNumbers[] = {
      ImGuiKey_W, ImGuiKey_A,       ImGuiKey_S,         ImGuiKey_D,     ImGuiKey_F,      ImGuiKey_P,         ImGuiKey_Z,
      ImGuiKey_Y, ImGuiKey_Period,  ImGuiKey_Comma,     ImGuiKey_Slash, ImGuiKey_Escape, ImGuiKey_LeftArrow, ImGuiKey_RightArrow,
      ImGuiKey_1, ImGuiKey_UpArrow, ImGuiKey_DownArrow, ImGuiKey_Enter, ImGuiKey_Space,  ImGuiKey_Tab,       ImGuiKey_Backspace,
      ImGuiKey_C, ImGuiKey_E,       ImGuiKey_L,         ImGuiKey_M,     ImGuiKey_N,      ImGuiKey_O,         ImGuiKey_Q,
      ImGuiKey_U, ImGuiKey_PageUp,  ImGuiKey_PageDown,  ImGuiKey_Minus, ImGuiKey_Equal};
#else
  constexpr int kNumbers[] = {'W', 'A', 'S', 'D', 'F', 'P', 'Z', 'Y', '.', ',', '/', 256, 263, 262, '1', 265, 264,
                              257, 32,  258, 259, 'C', 'E', 'L', 'M', 'N', 'O', 'Q', 'U', 266, 267, '-', '='};
#endif
  return kNumbers[static_cast<int>(key)];
}

// `repeats`: again and again while it is held.
inline bool is_pressed(Key key, int offset = 0, bool repeats = true) {
#if IMGUI_VERSION_NUM >= 18700
  return ImGui::IsKeyPressed(static_cast<ImGuiKey>(number_of(key) + offset), repeats);
#else
  return ImGui::IsKeyPressed(number_of(key) + offset, repeats);
#endif
}
inline bool is_pressed_once(Key key) { return is_pressed(key, 0, false); }

}  // namespace ulpscope::gui
