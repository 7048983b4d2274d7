// trace_test_writer PATH SEED QUEUE_BYTES FLUSH_MS: writes the sample trace, as commands on stdin say, one a line:
//   run          steps without end
//   steps N      N more steps, flushed
//   die_at N     the N-th write to a file from now on kills the process instead
//   cut_at N BYTES  before the N-th write to a file from now on, that file is cut to so many bytes
//   batches N    without end, N more steps, flushed
//   limit BYTES  no file may become larger
//   until_failed steps until the sink reports a failure, and ten more
//   unended      rows of a step that is not ended
//   close        closes the trace, says "rows N", its tensor rows, and exits
// On stdout: "ready", "committed N" at each commit, "done" after a command, "failed REASON", "error KIND MESSAGE".
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "sample_trace.h"
#include "ulpscope/base/error.h"

namespace {

// In one write: a line is there whole, or not at all.
void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(5);
}

std::atomic<int64_t> writes_left = INT64_MAX, writes_to_cut = INT64_MAX;
std::atomic<off_t> cut_bytes = 0;

ssize_t write_or_die(int file, const void* bytes, size_t size, off_t offset) {
  if (--writes_left == 0) ::kill(::getpid(), SIGKILL);
  if (--writes_to_cut == 0 && ::ftruncate(file, cut_bytes) != 0) std::_Exit(6);
  return ::syscall(SYS_pwrite64, file, bytes, size, offset);
}

}  // namespace

// In the place of the C library's, for HDF5 too.
extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return write_or_die(file, bytes, size, offset);
}
extern "C" ssize_t pwrite64(int file, const void* bytes, size_t size, off_t offset) {
  return write_or_die(file, bytes, size, offset);
}

int main(int argc, char** argv) {
  using namespace ulpscope;
  if (argc != 5) return 2;
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  TraceOptions options;
  options.queue_bytes = std::strtoull(argv[3], nullptr, 10);
  options.flush_interval = std::chrono::milliseconds(std::strtoull(argv[4], nullptr, 10));
  options.on_commit = [](uint64_t steps) { say("committed " + std::to_string(steps)); };
  try {
    const auto sink = create_trace(argv[1], trace_test::sample_run(seed), options);
    trace_test::add_start(*sink, seed);
    say("ready");
    uint64_t step = 0;
    std::string command;
    while (std::cin >> command) {
      uint64_t number = 0;
      if (command == "run") {
        for (;;) trace_test::add_step(*sink, seed, step++);
      } else if (command == "steps" && std::cin >> number) {
        for (const uint64_t end = step + number; step < end; ++step) trace_test::add_step(*sink, seed, step);
        sink->flush();
      } else if (command == "die_at" && std::cin >> number) {
        writes_left = static_cast<int64_t>(number);
      } else if (uint64_t bytes = 0; command == "cut_at" && std::cin >> number >> bytes) {
        cut_bytes = static_cast<off_t>(bytes);
        writes_to_cut = static_cast<int64_t>(number);
      } else if (command == "batches" && std::cin >> number) {
        for (;;) {
          for (const uint64_t end = step + number; step < end; ++step) trace_test::add_step(*sink, seed, step);
          sink->flush();
        }
      } else if (command == "limit" && std::cin >> number) {
        const rlimit limit{number, number};
        setrlimit(RLIMIT_FSIZE, &limit);
      } else if (command == "until_failed") {
        while (!sink->status().failed) trace_test::add_step(*sink, seed, step++);
        for (int i = 0; i < 10; ++i) trace_test::add_step(*sink, seed, step++);
        say("failed " + sink->status().failure);
      } else if (command == "unended") {
        for (const TensorRow& row : trace_test::sample_step(seed, step).rows) sink->add_row(row);
        sink->add_event({step, EventKind::metric, -1, 0, 0, 0, 0.5, "test_accuracy"});
      } else if (command == "close") {
        const bool good = sink->close();
        say("rows " + std::to_string(sink->status().tensor_rows));
        say("done");
        return good ? 0 : 1;
      } else {
        return 2;
      }
      say("done");
    }
  } catch (const Error& error) {
    say("error " + std::to_string(static_cast<int>(error.kind())) + " " + error.what());
    return 3;
  }
}
