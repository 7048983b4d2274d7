#include "writer_control.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "tests/support/project_files.h"

namespace ulpscope::trace_test {

WriterProcess::WriterProcess(const std::string& path, uint64_t seed, int flush_milliseconds, uint64_t queue_bytes) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string program = built_file("tests/trace/trace_test_writer");
  const std::string numbers[] = {std::to_string(seed), std::to_string(queue_bytes), std::to_string(flush_milliseconds)};
  process_ = fork();
  if (process_ == 0) {
    dup2(to_child[0], STDIN_FILENO);
    dup2(from_child[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), path.c_str(), numbers[0].c_str(), numbers[1].c_str(), numbers[2].c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(to_child[0]);
  close(from_child[1]);
  input_ = to_child[1];
  output_ = fdopen(from_child[0], "r");
}

WriterProcess::~WriterProcess() {
  if (process_ > 0) kill();
  close(input_);
  fclose(output_);
}

void WriterProcess::send(const std::string& command) {
  const std::string line = command + "\n";
  if (write(input_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw std::runtime_error("the writer has ended");
}

std::string WriterProcess::read_line() {
  std::string line;
  for (int c; (c = fgetc(output_)) != EOF && c != '\n';) line += static_cast<char>(c);
  if (line.starts_with("committed ")) acknowledged_ = std::max<uint64_t>(acknowledged_, std::stoull(line.substr(10)));
  return line;
}

std::string WriterProcess::wait_for(const std::string& start) {
  for (;;) {
    const std::string line = read_line();
    if (line.empty() || line.starts_with(start)) return line.substr(std::min(line.size(), start.size()));
    if (line.starts_with("error ")) throw std::runtime_error("the writer says: " + line);
  }
}

void WriterProcess::call(const std::string& command) {
  send(command);
  wait_for("done");
}

uint64_t WriterProcess::wait_for_steps(uint64_t steps) {
  while (acknowledged_ < steps) {
    if (read_line().empty()) throw std::runtime_error("the writer has ended");
  }
  return acknowledged_;
}

uint64_t WriterProcess::kill() {
  ::kill(process_, SIGKILL);
  finish();
  while (!read_line().empty()) {
  }
  return acknowledged_;
}

int WriterProcess::finish() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace ulpscope::trace_test
