#include "ulpscope/cli/trace_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/run/checkpoint.h"

namespace ulpscope::cli {

namespace {

// Sorted. Empty where `argument` is no folder.
std::vector<std::string> traces_in(const std::string& argument) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(argument, error)) return {};
  std::vector<std::string> traces;
  for (fs::directory_iterator entry(argument, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == ".h5" && entry->is_regular_file(ignored)) traces.push_back(entry->path().string());
  }
  if (error) throw unreadable_error("cannot read the folder '{}': {}", argument, error.message());
  if (traces.empty()) throw unreadable_error("'{}' is a folder without a trace (NAME.h5)", argument);
  std::sort(traces.begin(), traces.end());
  return traces;
}

// Of a file that is no trace.
std::string what_takes(const std::string& path) {
  bool is_capsule = true;
  try {
    read_capsule_steps(path);
  } catch (const Error&) {
    is_capsule = false;
  }
  const std::string file = shell_word(path);
  return is_capsule ? fmt::format(
                          "'{0}' is a capsule, and no trace: `ulpscope nan {1}`, `ulpscope updates {1}`, `ulpscope errors {1}` and "
                          "`ulpscope replay {1}` take it",
                          path, file)
                    : fmt::format("'{}' is a checkpoint, and no trace: `ulpscope train --resume {}` takes it", path, file);
}

}  // namespace

std::string trace_path(const std::string& argument) {
  const std::vector<std::string> traces = traces_in(argument);
  if (traces.empty()) return argument;
  if (traces.size() == 1) return traces.front();
  throw usage_error("'{}' is a folder with {} traces, and one is read at a time: '{}', for example", argument, traces.size(),
                    traces.front());
}

RunSet open_run(const std::string& argument) {
  const std::vector<std::string> traces = traces_in(argument);
  if (traces.size() > 1) return RunSet(argument, traces);
  if (traces.empty() && is_checkpoint(argument)) throw unreadable_error("{}", what_takes(argument));
  return RunSet(traces.empty() ? argument : traces.front());
}

Snapshot open_trace(const std::string& argument) { return open_run(argument).snapshot(); }

}  // namespace ulpscope::cli
