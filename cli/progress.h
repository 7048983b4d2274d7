// How training looks while it runs, on stderr: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

#include "ulpscope/core/run/trainer.h"

namespace ulpscope::cli {

class Progress {
 public:
  // Steps are counted to `total_steps`, and begin at `first_step`.
  Progress(uint64_t first_step, uint64_t total_steps, bool scaled);
  void update(const StepResult& step);
  void finish();  // leaves the bar's line

  // The bar's line in `width` columns; separate so that it can be tested.
  static std::string bar_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second,
                              int width);
  static std::string plain_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second);

 private:
  using Clock = std::chrono::steady_clock;
  double steps_per_second(uint64_t done) const;

  uint64_t first_, total_, skipped_ = 0;
  bool scaled_, terminal_;
  bool drawn_ = false;
  Clock::time_point start_, last_drawn_;
};

}  // namespace ulpscope::cli
