#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "tests/support/project_files.h"

namespace ulpscope::cli_test {

namespace {

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

int open_terminal(std::string& name) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) throw std::runtime_error("no pseudo terminal");
  name = ptsname(terminal);
  return terminal;
}

[[noreturn]] void become_program(const std::vector<std::string>& arguments, const RunOptions& options, int in, int out, int err) {
  if (options.input) dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (int file = 3; file < 64; ++file) close(file);
  for (const int file : options.closed) close(file);
  if (!options.working_directory.empty() && chdir(options.working_directory.c_str()) != 0) _exit(126);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  if (options.file_limit > 0) {
    const rlimit limit{options.file_limit, options.file_limit};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (options.memory_limit > 0) {
    const rlimit limit{options.memory_limit, options.memory_limit};
    setrlimit(RLIMIT_AS, &limit);
  }
  unsetenv("NO_COLOR");
  unsetenv("COLUMNS");
  for (const std::string& setting : options.environment) {
    setenv(setting.substr(0, setting.find('=')).c_str(), setting.substr(setting.find('=') + 1).c_str(), 1);
  }
  const std::string program = program_file();
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  _exit(127);
}

void fill_pipe(int file) {
  const int flags = fcntl(file, F_GETFL);
  fcntl(file, F_SETFL, flags | O_NONBLOCK);
  while (write(file, " ", 1) == 1) {
  }
  fcntl(file, F_SETFL, flags);
}

// Appends what can be read; false at the end.
bool read_some(int file, std::string& text) {
  char buffer[4096];
  const ssize_t count = read(file, buffer, sizeof buffer);
  if (count <= 0) return false;  // a terminal whose other side is gone gives an error
  text.append(buffer, static_cast<size_t>(count));
  return true;
}

}  // namespace

Result run_program(const std::vector<std::string>& arguments, const RunOptions& options) {
  Pipe in, out, err;
  if (options.input &&
      write(in.ends[1], options.input->data(), options.input->size()) != static_cast<ssize_t>(options.input->size()))
    throw std::runtime_error("the pipe does not hold the input");
  int terminal = -1, child_out = out.ends[1], child_err = err.ends[1], opened = -1;
  std::string terminal_name;
  if (options.terminal) {
    terminal = open_terminal(terminal_name);
    child_out = child_err = opened = open(terminal_name.c_str(), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_col = kTerminalColumns;
    ioctl(terminal, TIOCSWINSZ, &size);
  }
  if (!options.stdout_path.empty()) child_out = opened = open(options.stdout_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (options.stdout_closed) out.close_end(0);
  if (!options.interrupt_again_after.empty()) fill_pipe(out.ends[1]);
  const pid_t child = fork();
  if (child == 0) become_program(arguments, options, in.ends[0], child_out, child_err);
  if (opened >= 0) close(opened);
  in.close_end(0);
  in.close_end(1);
  out.close_end(1);
  err.close_end(1);

  Result result;
  struct Source {
    int file;
    std::string* text;
  };
  std::vector<Source> sources;
  if (terminal >= 0) {
    sources.push_back({terminal, &result.out});
  } else {
    if (out.ends[0] >= 0 && options.interrupt_again_after.empty()) sources.push_back({out.ends[0], &result.out});
    sources.push_back({err.ends[0], &result.err});
  }
  bool interrupted = options.interrupt_after.empty(), again = false;
  while (!sources.empty()) {
    std::vector<pollfd> polled;
    for (const Source& source : sources) polled.push_back({source.file, POLLIN, 0});
    constexpr int kMilliseconds = 20;
    poll(polled.data(), polled.size(), again ? kMilliseconds : -1);
    for (size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents != 0 && !read_some(sources[i].file, *sources[i].text))
        sources.erase(sources.begin() + static_cast<long>(i));
    }
    if (!interrupted && result.err.find(options.interrupt_after) != std::string::npos) {
      for (int i = 0; i < options.signals; ++i) kill(child, options.signal);
      interrupted = true;
    }
    again = !options.interrupt_again_after.empty() && result.err.find(options.interrupt_again_after) != std::string::npos;
    if (again) kill(child, options.signal);
  }
  if (terminal >= 0) close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace ulpscope::cli_test
