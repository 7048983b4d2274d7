// Keys by what they are, in every version of Dear ImGui: before 1.87 hosts gave the numbers that GLFW has.
#pragma once

#include <imgui.h>

namespace ulpscope::gui {

enum class Key { w, a, s, d, f, p, z, y, period, comma, question, escape, left, right, digit_1 };

// Where `io.KeysDown` has it, or ImGuiKey.
inline int number_of(Key key) {
#if IMGUI_VERSION_NUM >= 18700
  constexpr int kNumbers[] = {ImGuiKey_W,     ImGuiKey_A,      ImGuiKey_S,         ImGuiKey_D,          ImGuiKey_F,
                              ImGuiKey_P,     ImGuiKey_Z,      ImGuiKey_Y,         ImGuiKey_Period,     ImGuiKey_Comma,
                              ImGuiKey_Slash, ImGuiKey_Escape, ImGuiKey_LeftArrow, ImGuiKey_RightArrow, ImGuiKey_1};
#else
  constexpr int kNumbers[] = {'W', 'A', 'S', 'D', 'F', 'P', 'Z', 'Y', '.', ',', '/', 256, 263, 262, '1'};
#endif
  return kNumbers[static_cast<int>(key)];
}

inline bool is_pressed(Key key, int offset = 0) {
#if IMGUI_VERSION_NUM >= 18700
  return ImGui::IsKeyPressed(static_cast<ImGuiKey>(number_of(key) + offset));
#else
  return ImGui::IsKeyPressed(number_of(key) + offset);
#endif
}

}  // namespace ulpscope::gui
