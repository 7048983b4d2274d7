// Runs trace_test_writer (writer_process.cpp) and talks to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace ulpscope::trace_test {

class WriterProcess {
 public:
  WriterProcess(const std::string& path, uint64_t seed, int flush_milliseconds = 1000, uint64_t queue_bytes = 64 << 20);
  ~WriterProcess();
  WriterProcess(const WriterProcess&) = delete;

  void send(const std::string& command);
  // The next line that begins with `start`, without it; lines before it are dropped. "" where the process has ended.
  std::string wait_for(const std::string& start);
  // Sends a command and waits for its end.
  void call(const std::string& command);
  // Waits for commits until at least `steps` are committed; returns how many are.
  uint64_t wait_for_steps(uint64_t steps);
  // SIGKILL, and the end of the process. Returns the largest number of committed steps that it acknowledged.
  uint64_t kill();
  // Waits for the end of the process; returns its exit status.
  int finish();

 private:
  std::string read_line();

  pid_t process_ = -1;
  int input_ = -1;
  FILE* output_ = nullptr;
  uint64_t acknowledged_ = 0;
};

}  // namespace ulpscope::trace_test
