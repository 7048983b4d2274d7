// The window's content on a synthetic trace, and what a hand does to it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "synthetic_trace.h"
#include "tests/gui/open_run.h"
#include "ulpscope/gui/app.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/keys.h"

namespace ulpscope::gui {

using analyzers_test::SyntheticTrace;

// All text of a frame. ImGui ends what it logs with the window.
inline std::string text_of_frame(App& app) {
  ImGui::NewFrame();
  ImGui::LogToClipboard(8);
  app.frame();
  ImGui::Render();
  return ImGui::GetClipboardText();
}

// A run of 100 steps with two FP16 gradients, one of which overflows in step 40, where the scale backs off.
inline std::string make_trace(SyntheticTrace& trace, RecordLevel level = RecordLevel::stats) {
  std::mt19937 random(11);
  const uint32_t first = trace.add_tensor("body", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t second =
      trace.add_tensor("head<script>", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  for (uint64_t step = 0; step < 100; ++step) {
    for (const uint32_t tensor : {first, second}) {
      std::vector<double> values = analyzers_test::lognormal(random, tensor == first ? -20 : -5, 4, 200);
      if (step == 40 && tensor == second) values[7] = 1e6;
      trace.add(tensor, level == RecordLevel::health ? analyzers_test::make_health_row(values, DType::f16, 1024)
                                                     : analyzers_test::make_row(values, DType::f16, 1024));
    }
    StepRow row = SyntheticTrace::default_step(3.0 / (1 + static_cast<double>(step)), step <= 40 ? 1024 : 512);
    if (step == 40) {
      row.skipped = true;
      row.scale_after = 512;
      trace.add_event(EventKind::scale_backoff, second, 1, 512);
    }
    trace.end_step(row);
  }
  trace.read();
  return trace.path();
}

class AppTest : public ::testing::Test {
 protected:
  explicit AppTest(RecordLevel level = RecordLevel::stats, int width = 1000, int height = 700)
      : AppTest([level](SyntheticTrace& trace) { return make_trace(trace, level); }, width, height) {}
  explicit AppTest(const std::function<std::string(SyntheticTrace&)>& make, int width = 1000, int height = 700)
      : model_({make(trace_)}, open_run, false), host_(width, height, 1, true), app_(model_, host_.textures(), {}) {
    settle();
  }
  void settle() {
    for (int i = 0; i < 4; ++i) {
      model_.wait();
      host_.run(app_);
    }
  }
  Rectangle place(const std::string& name) {
    const Rectangle* const found = app_.names().find(name);
    EXPECT_NE(found, nullptr) << name;
    return found ? *found : Rectangle{{0, 0}, {1, 1}};
  }
  void click(ImVec2 at) {
    host_.move_to(at);
    host_.run(app_);
    host_.press(true);
    host_.run(app_);
    host_.press(false);
    host_.run(app_);
    host_.move_to({-1, -1});
    settle();
  }
  void click(const std::string& name) { click(place(name).middle()); }
  void drag(ImVec2 from, ImVec2 to) {
    host_.move_to(from);
    host_.run(app_);
    host_.press(true);
    host_.run(app_);
    host_.move_to(to);
    host_.run(app_);
    host_.press(false);
    host_.run(app_);
    settle();
  }
  void key(Key which, bool control = false, bool shift = false, int offset = 0) {
    host_.key(number_of(which) + offset, true, control, shift);
    host_.run(app_);
    host_.key(number_of(which) + offset, false);
    host_.run(app_);
    settle();
  }
  std::string text() { return text_of_frame(app_); }

  SyntheticTrace trace_;
  ViewModel model_;
  Headless host_;
  App app_;
};

}  // namespace ulpscope::gui
