// How training looks while it runs, on stderr: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ulpscope/core/run/trainer.h"

namespace ulpscope::cli {

// Where progress is shown, and what time it is there.
struct ProgressScreen {
  bool terminal = false;
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::string_view)> write;
};
ProgressScreen stderr_screen();

// Without a terminal, a run prints some twenty lines, and one a minute where that is more. A step is named as reports name it, by
// its number from 0; what is done is a count of steps.
class Progress {
 public:
  explicit Progress(ProgressScreen screen = stderr_screen());
  Progress(const Progress&) = delete;
  ~Progress() { finish(); }
  // Steps are counted to `total_steps`, and begin at `first_step`.
  void begin(uint64_t first_step, uint64_t total_steps, bool scaled);
  void update(const StepResult& step);
  // Work that is no step, of which `share` is done; with a share of 0 it is announced.
  void work(std::string_view what, double share);
  void finish();  // leaves the bar's line

  // The bar's line in `width` columns; separate so that it can be tested.
  static std::string bar_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second,
                              int width);
  static std::string plain_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second);

 private:
  double steps_per_second(uint64_t done) const;
  void line(const std::string& text);
  void draw(const std::string& text);

  ProgressScreen screen_;
  uint64_t first_ = 0, total_ = 0, skipped_ = 0;
  bool scaled_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_shown_;
};

}  // namespace ulpscope::cli
