// The signals that ask a long command for an end: Ctrl+C (SIGINT), SIGTERM, SIGHUP.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace ulpscope::cli {

// While it lives, a thread of its own takes these signals: the first one is told, the second ends the program as if nobody had
// caught it, with a word about it on stderr. What comes within a tenth of a second of the first is no second one: timeout(1) asks
// the program, and then its group. Those that the caller has ignored (nohup) stay ignored.
//
// Handlers would not do: the matrix products of oneDNN point the stack pointer into the heap while they run, and the frame of a
// handler that interrupts them overwrites what lies there.
class StopSignals {
 public:
  // Before any other thread is made, so that all of them leave the signals alone.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;

  bool came() const { return first_ != 0; }
  // "SIGINT", or "".
  const char* name() const;

 private:
  void take();

  sigset_t taken_, mask_before_;
  std::atomic<int> first_ = 0;  // the signal that came
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace ulpscope::cli
