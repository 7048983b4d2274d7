#include <csignal>
#include <exception>
#include <new>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/parser.h"

namespace {

int exit_code(ulpscope::ErrorKind kind) {
  switch (kind) {
    case ulpscope::ErrorKind::usage:
      return ulpscope::cli::kUsage;
    case ulpscope::ErrorKind::unreadable:
      return ulpscope::cli::kUnreadable;
    case ulpscope::ErrorKind::failed:
      break;
  }
  return ulpscope::cli::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  ulpscope::cli::reserve_standard_files();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough, like head, is no failure
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size (ulimit -f) is one that cannot be written, which is told
  try {
    const ulpscope::cli::Command command =
        ulpscope::cli::parse(ulpscope::cli::verbs(), std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
    if (!command.verb) {
      ulpscope::cli::write_stdout(command.show);
      return ulpscope::cli::kClean;
    }
    return command.verb->run(command.arguments);
  } catch (const ulpscope::Error& error) {
    // Names from a file may hold any bytes, and none of them moves the cursor.
    ulpscope::cli::say("ulpscope: {}", ulpscope::one_line(error.what()));
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    ulpscope::cli::say("ulpscope: out of memory: smaller batches or models need less");
    return ulpscope::cli::kFailed;
  } catch (const std::exception& error) {
    ulpscope::cli::say("ulpscope: internal error: {}", error.what());
    return ulpscope::cli::kFailed;
  }
}
