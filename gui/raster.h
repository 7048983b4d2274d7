// ImGui's triangles drawn into an image by the CPU: no display, no OpenGL, and the same bytes each time.
#pragma once

#include <memory>
#include <string>

#include "ulpscope/gui/canvas.h"

namespace ulpscope::gui {

// Texture identifiers are addresses of Images. `onto` has the size of the display and is drawn over.
void rasterize(const ImDrawData& data, Image& onto);

// As a file of that format, 8 bits of red, green and blue a pixel.
std::string png_of(const Image& image);

}  // namespace ulpscope::gui
