#include "ulpscope/gui/window.h"

#define GLFW_INCLUDE_GLEXT
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/app.h"
#include "ulpscope/gui/key_queue.h"
#include "ulpscope/gui/raster.h"

namespace ulpscope::gui {

namespace {

std::string last_error() {
  const char* text = nullptr;
  return glfwGetError(&text) == GLFW_NO_ERROR || !text ? "" : ": " + one_line(text);
}

class Glfw {
 public:
  Glfw() {
    if (!glfwInit())
      throw failed_error("no display{}; `ulpscope screenshot` and `ulpscope report --format html` need none", last_error());
  }
  ~Glfw() { glfwTerminate(); }
  Glfw(const Glfw&) = delete;
};

template <typename Function>
Function* gl_function(const char* name) {
  if (auto* const function = reinterpret_cast<Function*>(glfwGetProcAddress(name))) return function;
  throw failed_error("OpenGL has no {}; `ulpscope screenshot` and `ulpscope report --format html` need none", name);
}

// The functions of OpenGL that this file calls, as GLFW finds them for the context that is current. The program is not linked with
// OpenGL, so that it starts where there is none.
struct Gl {
#define ULPSCOPE_GL_FUNCTION(name) decltype(::name)* name = gl_function<decltype(::name)>(#name);
  ULPSCOPE_GL_FUNCTION(glBindTexture)
  ULPSCOPE_GL_FUNCTION(glClear)
  ULPSCOPE_GL_FUNCTION(glClearColor)
  ULPSCOPE_GL_FUNCTION(glDeleteTextures)
  ULPSCOPE_GL_FUNCTION(glFinish)
  ULPSCOPE_GL_FUNCTION(glGenTextures)
  ULPSCOPE_GL_FUNCTION(glPixelStorei)
  ULPSCOPE_GL_FUNCTION(glReadPixels)
  ULPSCOPE_GL_FUNCTION(glTexImage2D)
  ULPSCOPE_GL_FUNCTION(glTexParameteri)
  ULPSCOPE_GL_FUNCTION(glViewport)
#undef ULPSCOPE_GL_FUNCTION
};

// Images as OpenGL has them; made and dropped while its context is current.
class GlTextures : public Textures {
 public:
  explicit GlTextures(const Gl& gl) : gl_(gl) {}
  ~GlTextures() override {
    for (const auto& [name, texture] : textures_) gl_.glDeleteTextures(1, &texture);
  }

 private:
  ImTextureID hold(const std::string& name, Image image) override {
    const auto [place, is_new] = textures_.try_emplace(name, 0U);
    if (is_new) gl_.glGenTextures(1, &place->second);
    gl_.glBindTexture(GL_TEXTURE_2D, place->second);
    // A cell is a rectangle of one colour, whatever its size on the screen.
    gl_.glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    gl_.glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    gl_.glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA, image.width, image.height, 0, GL_RGBA, GL_UNSIGNED_BYTE, image.pixels.data());
    return reinterpret_cast<ImTextureID>(static_cast<intptr_t>(place->second));
  }

  const Gl& gl_;
  std::map<std::string, GLuint> textures_;
};

class Window {
 public:
  Window(int width, int height) {
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 0);
    window_ = glfwCreateWindow(width, height, "ulpscope", nullptr, nullptr);
    if (!window_)
      throw failed_error("no window with OpenGL 3.0{}; `ulpscope screenshot` and `ulpscope report --format html` need none",
                         last_error());
    glfwSetWindowSizeLimits(window_, 200, 150, GLFW_DONT_CARE, GLFW_DONT_CARE);
    glfwMakeContextCurrent(window_);
    gl_.emplace();
    glfwSwapInterval(1);
    float other = 1;
    glfwGetWindowContentScale(window_, &scale_, &other);
    scale_ = std::clamp(scale_, 0.5F, 4.0F);
    ImGui::CreateContext();
    ImGui::GetIO().IniFilename = nullptr;
    ImGui::GetIO().LogFilename = nullptr;
    load_font(*ImGui::GetIO().Fonts, false, 15 * scale_);
    ImGui_ImplGlfw_InitForOpenGL(window_, true);
    // Keys go through a queue; all else goes to ImGui at once.
    glfwSetWindowUserPointer(window_, this);
    glfwSetKeyCallback(window_, [](GLFWwindow* window, int key, int scancode, int action, int modifiers) {
      if (action == GLFW_REPEAT) return;  // ImGui repeats by itself
      queue_of(window).add({action == GLFW_PRESS ? KeyEvent::Kind::down : KeyEvent::Kind::up, key, scancode, modifiers});
    });
    glfwSetCharCallback(window_, [](GLFWwindow* window, unsigned character) {
      queue_of(window).add({.kind = KeyEvent::Kind::text, .character = character});
    });
    ImGui_ImplOpenGL3_Init("#version 130");
  }
  ~Window() {
    ImGui_ImplOpenGL3_Shutdown();
    ImGui_ImplGlfw_Shutdown();
    ImGui::DestroyContext();
    glfwDestroyWindow(window_);
  }
  Window(const Window&) = delete;

  float scale() const { return scale_; }
  // Of keys that no frame has seen yet.
  bool has_keys() const { return !keys_.is_empty(); }
  bool is_open() const { return !glfwWindowShouldClose(window_); }
  void set_title(const std::string& title) {
    if (title == title_) return;
    title_ = title;
    glfwSetWindowTitle(window_, title_.c_str());
  }
  void draw(App& app) {
    keys_.give([&](const KeyEvent& event) {
      if (event.kind == KeyEvent::Kind::text)
        ImGui_ImplGlfw_CharCallback(window_, event.character);
      else
        ImGui_ImplGlfw_KeyCallback(window_, event.key, event.scancode,
                                   event.kind == KeyEvent::Kind::down ? GLFW_PRESS : GLFW_RELEASE, event.modifiers);
    });
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    app.frame();
    ImGui::Render();
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    const ImVec4 color = ImGui::ColorConvertU32ToFloat4(theme(app.state().is_light).background);
    gl_->glViewport(0, 0, width, height);
    gl_->glClearColor(color.x, color.y, color.z, 1);
    gl_->glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    if (const std::string path = app.take_wanted_picture(); !path.empty()) write_picture(app, path, width, height);
    glfwSwapBuffers(window_);
  }
  const Gl& gl() const { return *gl_; }
  std::pair<int, int> size() const {
    std::pair<int, int> size;
    glfwGetWindowSize(window_, &size.first, &size.second);
    return size;
  }

 private:
  static KeyQueue& queue_of(GLFWwindow* window) { return static_cast<Window*>(glfwGetWindowUserPointer(window))->keys_; }
  void write_picture(App& app, const std::string& path, int width, int height) const {
    Image drawn{width, height, std::vector<ImU32>(static_cast<size_t>(width) * static_cast<size_t>(height))};
    gl_->glPixelStorei(GL_PACK_ALIGNMENT, 1);
    gl_->glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, drawn.pixels.data());
    // OpenGL has the lowest row first.
    for (int row = 0; row < height / 2; ++row)
      std::swap_ranges(drawn.pixels.begin() + static_cast<ptrdiff_t>(row) * width,
                       drawn.pixels.begin() + static_cast<ptrdiff_t>(row + 1) * width,
                       drawn.pixels.begin() + static_cast<ptrdiff_t>(height - 1 - row) * width);
    save_picture(app, path, drawn);
  }

  GLFWwindow* window_ = nullptr;
  std::optional<Gl> gl_;  // once the window's context is current
  KeyQueue keys_;
  float scale_ = 1;
  std::string title_;
};

}  // namespace

Layout run_window(std::vector<std::string> paths, ViewModel::Open open, const Layout& layout, const std::function<void()>& opened) {
  const Glfw glfw;
  Window window(layout.width, layout.height);
  if (opened) opened();
  GlTextures textures(window.gl());
  ViewModel model(std::move(paths), std::move(open), true);
  App app(model, textures, layout.state, window.scale());
  model.on_news([] { glfwPostEmptyEvent(); });
  // A frame shows what the one before laid out: each event is followed by a few. In between the program sleeps.
  constexpr int kFramesAfterEvent = 3;
  int frames = kFramesAfterEvent;
  while (window.is_open() && !app.wants_to_close()) {
    if (frames > 0) {
      glfwPollEvents();
      --frames;
    } else {
      glfwWaitEvents();
      frames = kFramesAfterEvent;
    }
    window.set_title(app.command());
    window.draw(app);
    if (window.has_keys()) frames = kFramesAfterEvent;
  }
  model.on_news({});
  const auto [width, height] = window.size();
  return {app.state(), width, height};
}

std::vector<std::vector<double>> time_window(std::vector<std::string> paths, ViewModel::Open open,
                                             const std::vector<ViewState>& states, int width, int height, int frames) {
  const Glfw glfw;
  Window window(width, height);
  glfwSwapInterval(0);
  GlTextures textures(window.gl());
  ViewModel model(std::move(paths), std::move(open), false);
  App app(model, textures, {}, window.scale());
  std::vector<std::vector<double>> seconds;
  for (const ViewState& state : states) {
    app.state() = state;
    constexpr int kSettling = 4;  // frames until all was read and laid out
    std::vector<double>& of_state = seconds.emplace_back();
    for (int frame = -kSettling; frame < frames; ++frame) {
      if (frame < 0) model.wait();
      glfwPollEvents();
      const double start = glfwGetTime();
      window.draw(app);
      window.gl().glFinish();
      if (frame >= 0) of_state.push_back(glfwGetTime() - start);
    }
  }
  return seconds;
}

}  // namespace ulpscope::gui
