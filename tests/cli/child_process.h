// Runs the program as its users do: as a process of its own.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ulpscope::cli_test {

struct Result {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // which
  std::string out, err;
};

inline constexpr int kTerminalColumns = 80;

struct RunOptions {
  std::vector<std::string> environment;  // "NAME=VALUE", besides the test's own without NO_COLOR and COLUMNS
  std::string stdout_path;               // stdout goes there
  bool stdout_closed = false;            // stdout is a pipe that nobody reads
  std::optional<std::string> input;      // stdin is a pipe that holds this, at most 64 KiB
  std::vector<int> closed;               // standard files that are closed when it starts
  bool terminal = false;                 // stdout and stderr are a terminal of kTerminalColumns; both come back in `out`
  std::string working_directory;
  std::string interrupt_after;  // `signal` once stderr holds this text
  int signal = SIGINT;
  int signals = 1;            // that many at once
  uint64_t file_limit = 0;    // bytes that a file may have (ulimit -f); 0: no limit
  uint64_t memory_limit = 0;  // bytes of address space that it may have; 0: no limit
  // And again, until it ends; stdout is a full pipe, so that the program cannot end otherwise.
  std::string interrupt_again_after;
};

Result run_program(const std::vector<std::string>& arguments, const RunOptions& options = {});

}  // namespace ulpscope::cli_test
