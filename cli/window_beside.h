// The window that `ulpscope train --view` opens beside the run.
#pragma once

#include <string>

namespace ulpscope::cli {

// A window on a trace that this process is about to write, in a process of its own and of low priority: it may be slow, fail or be
// closed, and training goes on; it stays when training ends or dies.
class WindowBeside {
 public:
  // Opens it. Before other threads are made, which a copy of the process would lack. Throws Error (failed) where there is no
  // display and the like.
  explicit WindowBeside(const std::string& trace);
  // Where it has no trace to show, it closes.
  ~WindowBeside();
  WindowBeside(const WindowBeside&) = delete;

  // The trace is there.
  void show();

 private:
  int to_window_ = -1;
};

}  // namespace ulpscope::cli
