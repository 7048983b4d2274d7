// A window without a display: frames are drawn into an image, and the pointer and keys are what a caller sets.
#pragma once

#include <memory>

#include "ulpscope/gui/app.h"
#include "ulpscope/gui/raster.h"

namespace ulpscope::gui {

class Headless {
 public:
  // In pixels. `own_font`: ImGui's own, which every build has. One exists at a time.
  Headless(int width, int height, float scale = 1, bool own_font = false);
  ~Headless();
  Headless(const Headless&) = delete;

  Textures& textures() { return textures_; }
  // Runs a frame, without drawing it.
  void run(App& app);
  // Runs one and draws it. Pictures that the window asks for are the caller's to write.
  const Image& draw(App& app);
  void resize(int width, int height);

  void move_to(ImVec2 point);
  void press(bool down, int button = 0);
  void wheel(float notches);
  // A key by its number (keys.h), with control keys as they stand.
  void key(int number, bool down, bool control = false, bool shift = false);
  void type(const std::string& text);

 private:
  class Images : public Textures {
   private:
    ImTextureID hold(const std::string& name, Image image) override;
    std::map<std::string, std::unique_ptr<Image>> images_;
  };

  ImGuiContext* context_;
  Images textures_;
  Image font_, image_;
};

}  // namespace ulpscope::gui
