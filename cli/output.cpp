#include "ulpscope/cli/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ulpscope/base/file.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/help.h"

namespace ulpscope::cli {

void reserve_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

bool write_stdout(std::string_view bytes) {
  static bool closed = false;
  const std::string valid = valid_utf8(bytes);
  std::string_view text = valid;
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

void write_stderr(std::string_view bytes) {
  const std::string valid = valid_utf8(bytes);
  std::string_view text = valid;
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void write_text_file(const std::string& path, std::string_view text) { atomic_write_file(path, valid_utf8(text)); }

bool is_capable_terminal(int file) {
  const char* terminal = std::getenv("TERM");
  return isatty(file) && !(terminal && std::strcmp(terminal, "dumb") == 0);
}

TextOptions text_options_of_stdout() {
  TextOptions options;
  if (const char* columns = std::getenv("COLUMNS")) {
    if (const auto width = parse_number<int64_t>(columns)) {
      options.width = static_cast<int>(std::clamp<int64_t>(*width, 40, 400));
      options.fit_width = true;
    }
  }
  if (!isatty(STDOUT_FILENO)) return options;
  options.fit_width = true;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.width = std::clamp<int>(size.ws_col, 40, 400);
  const char* no_color = std::getenv("NO_COLOR");
  options.color = !(no_color && *no_color) && is_capable_terminal(STDOUT_FILENO);
  return options;
}

bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto place = [&](const std::string& path) { return fs::weakly_canonical(fs::absolute(path, error), error); };
  return fs::equivalent(a, b, error) || place(a) == place(b);
}

void check_replaceable(const std::string& path, bool force, const std::vector<std::string>& others) {
  std::error_code error;
  for (const std::string& other : others) {
    // A folder stands for the traces in it.
    const bool is_in_folder = std::filesystem::is_directory(other, error) && std::filesystem::exists(path, error) &&
                              is_same_file(std::filesystem::absolute(path, error).parent_path().string(), other);
    if (is_in_folder || is_same_file(path, other))
      throw usage_error("'{}' is another file of this command, and is not replaced", path);
  }
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, error))
      throw failed_error("cannot write '{}': there is no folder '{}'", path, folder.string());
  } else {
    if (!std::filesystem::is_regular_file(status)) throw not_a_file_error(path);
    if (!force) throw file_exists_error(path);
  }
  check_creatable(path);
}

void make_output_folder(const std::filesystem::path& folder, bool may_hold_files, std::string_view option) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status))
    throw usage_error("'{}' exists and is no folder: {} names another place", folder.string(), option);
  if (fs::is_directory(status)) {
    if (!may_hold_files && !fs::is_empty(folder, error))
      throw usage_error(
          "the folder '{}' exists and is not empty: --force replaces files of the same names in it, {} names another one",
          folder.string(), option);
    return;
  }
  fs::create_directories(folder, error);
  if (error) throw failed_error("cannot create the folder '{}': {}", folder.string(), error.message());
}

}  // namespace ulpscope::cli
