#include "ulpscope/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/cli/help.h"

namespace ulpscope::cli {

bool write_stdout(std::string_view text) {
  static bool closed = false;
  while (!closed && !text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno != EPIPE) throw failed_error("stdout cannot be written: {}", std::strerror(errno));
      closed = true;
      break;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return !closed;
}

TextOptions text_options_of_stdout() {
  TextOptions options;
  if (const char* columns = std::getenv("COLUMNS")) {
    if (const auto width = parse_integer(columns)) options.width = static_cast<int>(std::clamp<int64_t>(*width, 40, 400));
  }
  if (!isatty(STDOUT_FILENO)) return options;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.width = std::clamp<int>(size.ws_col, 40, 400);
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  options.color = !(no_color && *no_color) && !(terminal && std::strcmp(terminal, "dumb") == 0);
  return options;
}

void check_replaceable(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) return;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(path, input, error))
      throw usage_error("{} is an input of this command, and is not replaced", path);
  if (!std::filesystem::is_regular_file(status)) throw usage_error("{} is not a regular file, and is not replaced", path);
  if (!force) throw usage_error("{} exists; --force replaces it", path);
}

}  // namespace ulpscope::cli
