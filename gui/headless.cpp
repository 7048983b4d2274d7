#include "ulpscope/gui/headless.h"

#include <algorithm>

namespace ulpscope::gui {

ImTextureID Headless::Images::hold(const std::string& name, Image image) {
  return (images_[name] = std::make_unique<Image>(std::move(image))).get();
}

Headless::Headless(int width, int height, float scale, bool own_font) : context_(ImGui::CreateContext()) {
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.LogFilename = nullptr;
  io.DeltaTime = 1.0F / 60;
  io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;
  load_font(*io.Fonts, own_font, 15 * scale);
  unsigned char* pixels = nullptr;
  io.Fonts->GetTexDataAsRGBA32(&pixels, &font_.width, &font_.height);
  const auto* const colors = reinterpret_cast<const ImU32*>(pixels);
  font_.pixels.assign(colors, colors + static_cast<size_t>(font_.width) * static_cast<size_t>(font_.height));
  io.Fonts->SetTexID(&font_);
  resize(width, height);
}

Headless::~Headless() { ImGui::DestroyContext(context_); }

void Headless::resize(int width, int height) {
  ImGui::GetIO().DisplaySize = {static_cast<float>(width), static_cast<float>(height)};
  image_.width = width;
  image_.height = height;
}

void Headless::run(App& app) {
  ImGui::NewFrame();
  app.frame();
  ImGui::Render();
}

const Image& Headless::draw(App& app) {
  run(app);
  image_.pixels.assign(static_cast<size_t>(image_.width) * static_cast<size_t>(image_.height),
                       theme(app.state().is_light).background);
  rasterize(*ImGui::GetDrawData(), image_);
  return image_;
}

#if IMGUI_VERSION_NUM >= 18700
void Headless::move_to(ImVec2 point) { ImGui::GetIO().AddMousePosEvent(point.x, point.y); }
void Headless::press(bool down, int button) { ImGui::GetIO().AddMouseButtonEvent(button, down); }
void Headless::wheel(float notches) { ImGui::GetIO().AddMouseWheelEvent(0, notches); }
void Headless::key(int number, bool down, bool control, bool shift) {
  ImGuiIO& io = ImGui::GetIO();
  io.AddKeyEvent(ImGuiMod_Ctrl, control);
  io.AddKeyEvent(ImGuiMod_Shift, shift);
  io.AddKeyEvent(static_cast<ImGuiKey>(number), down);
}
#else
void Headless::move_to(ImVec2 point) { ImGui::GetIO().MousePos = point; }
void Headless::press(bool down, int button) { ImGui::GetIO().MouseDown[button] = down; }
void Headless::wheel(float notches) { ImGui::GetIO().MouseWheel += notches; }
void Headless::key(int number, bool down, bool control, bool shift) {
  ImGuiIO& io = ImGui::GetIO();
  io.KeyCtrl = control;
  io.KeyShift = shift;
  io.KeysDown[number] = down;
}
#endif

void Headless::type(const std::string& text) { ImGui::GetIO().AddInputCharactersUTF8(text.c_str()); }

}  // namespace ulpscope::gui
