// The share of a training's time that recording takes: measured in one step of eight, so that reading the clock costs next to
// nothing.
#pragma once

#include <chrono>
#include <cstdint>

namespace ulpscope::aten {

class Cost {
 public:
  // Between these, by one thread at a time, the program waits for the recording. Pairs lie in one another.
  void enter() {
    if (depth_++ == 0 && is_timed_) entered_ = Clock::now();
  }
  void leave() {
    if (--depth_ == 0 && is_timed_) recording_ += Clock::now() - entered_;
  }
  // Within a pair. The first step, in which much is done for the first time, is not timed.
  void end_step() {
    constexpr uint64_t kEvery = 8;
    const Clock::time_point now = Clock::now();
    if (is_timed_) {
      recording_ += now - entered_;
      all_ += now - began_;
      ++steps_;
    }
    is_timed_ = ended_++ % kEvery == 0;
    entered_ = began_ = now;
  }

  uint64_t steps() const { return steps_; }                // that were timed
  double seconds() const { return all_.count(); }          // that these took
  double recording() const { return recording_.count(); }  // of which the program waited so long

 private:
  using Clock = std::chrono::steady_clock;

  uint64_t depth_ = 0, ended_ = 0, steps_ = 0;
  bool is_timed_ = false;
  Clock::time_point entered_, began_;
  std::chrono::duration<double> all_{}, recording_{};
};

}  // namespace ulpscope::aten
