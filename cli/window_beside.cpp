#include "ulpscope/cli/window_beside.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/gui/window.h"

namespace ulpscope::cli {

namespace {

// What the window tells first: that it is there, or why it is not.
constexpr char kOpened = '+', kFailed = '-';
constexpr int kLowPriority = 10;

void send_text(int socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0 && errno != EINTR) return;
    if (count > 0) sent += static_cast<size_t>(count);
  }
}

// True once the other end has told that the trace is there.
bool is_told(int socket) {
  pollfd asked{socket, POLLIN, 0};
  if (poll(&asked, 1, 0) <= 0) return false;
  char told = 0;
  const ssize_t count = recv(socket, &told, 1, 0);
  if (count == 1) return true;
  std::_Exit(EXIT_SUCCESS);  // the run ended before it began
}

[[noreturn]] void be_the_window(int socket, const std::string& trace) {
  // Ctrl+C is for the run, and who reads what the run prints does not wait for the window.
  setsid();
  const int nothing = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  // A process that may not lower its own priority shows the run all the same.
  [[maybe_unused]] const int priority = nice(kLowPriority);
  bool is_there = false;
  const auto open_when_there = [&](const std::string& path) -> std::optional<RunSet> {
    if (!is_there && !(is_there = is_told(socket))) return std::nullopt;
    return open_run(path);
  };
  try {
    const gui::Layout layout = gui::read_layout(gui::layout_path());
    gui::write_layout(gui::layout_path(), gui::run_window({trace}, open_when_there, layout, [&] { send_text(socket, {kOpened}); }));
  } catch (const std::exception& error) {
    send_text(socket, kFailed + std::string(error.what()));
  }
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace

WindowBeside::WindowBeside(const std::string& trace) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw failed_error("--view: {}", std::strerror(errno));
  const pid_t window = fork();
  if (window == 0) {
    close(ends[0]);
    be_the_window(ends[1], trace);
  }
  const int failure = errno;
  close(ends[1]);
  to_window_ = ends[0];
  std::string told;
  char piece[512];
  for (ssize_t count = 1; window > 0 && count != 0 && (told.empty() || told[0] != kOpened);) {
    count = recv(to_window_, piece, sizeof piece, 0);
    if (count > 0) told.append(piece, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  if (!told.empty() && told[0] == kOpened) return;
  close(to_window_);
  throw failed_error("--view: {}", window < 0     ? std::strerror(failure)
                                   : told.empty() ? "the window ended before it was there"
                                                  : told.substr(1).c_str());
}

WindowBeside::~WindowBeside() { close(to_window_); }

void WindowBeside::show() { send_text(to_window_, {kOpened}); }

}  // namespace ulpscope::cli
