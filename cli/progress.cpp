#include "ulpscope/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"

namespace ulpscope::cli {

namespace {

// Lines that a run prints where there is no terminal, and how long one is waited for at most.
constexpr uint64_t kPlainLines = 20;
constexpr std::chrono::seconds kPlainInterval{60};
constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kEraseLine = "\r\033[K";

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string loss_text(double loss) { return std::isnan(loss) ? "loss nan" : fmt::format("loss {:.4g}", loss); }

std::string numbers(const StepResult& step, uint64_t skipped, bool scaled) {
  std::string text = loss_text(step.loss);
  if (scaled) text += fmt::format("  scale {}", cell_text(step.scale, Unit::scale));
  if (scaled || skipped > 0) text += fmt::format("  skipped {}", skipped);
  return text;
}

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressScreen stderr_screen() {
  return {is_capable_terminal(STDERR_FILENO), [] { return std::chrono::steady_clock::now(); }, write_stderr};
}

Progress::Progress(ProgressScreen screen) : screen_(std::move(screen)), start_(screen_.now()), last_shown_(start_) {}

void Progress::begin(uint64_t first_step, uint64_t total_steps, bool scaled) {
  finish();
  first_ = first_step;
  total_ = total_steps;
  scaled_ = scaled;
  start_ = screen_.now();
  last_shown_ = start_ - kRedraw;
}

double Progress::steps_per_second(uint64_t done) const {
  const double seconds = std::chrono::duration<double>(screen_.now() - start_).count();
  return seconds > 0 ? static_cast<double>(done - first_) / seconds : 0.0;
}

void Progress::line(const std::string& text) {
  last_shown_ = screen_.now();
  screen_.write(drawn_ ? kEraseLine + text + "\n" : text + "\n");
  drawn_ = false;
}

void Progress::draw(const std::string& text) {
  last_shown_ = screen_.now();
  screen_.write(kEraseLine + text);
  drawn_ = true;
}

std::string Progress::bar_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second,
                               int width) {
  const uint64_t done = step.step + 1;
  const double left = steps_per_second > 0 ? static_cast<double>(total - std::min(done, total)) / steps_per_second : 0;
  const std::string tail = fmt::format("  {}/{}  {}  {:.1f} steps/s  {} left", done, total, numbers(step, skipped, scaled),
                                       steps_per_second, duration_text(left));
  const int room = width - static_cast<int>(tail.size()) - 1;  // the last column would wrap
  if (room < 5) return tail.substr(2, static_cast<size_t>(std::max(1, width - 1)));
  const int bar = std::min(room, 40);
  const int filled =
      total > 0 ? static_cast<int>(static_cast<double>(bar) * static_cast<double>(done) / static_cast<double>(total)) : 0;
  std::string line;
  for (int i = 0; i < bar; ++i) line += i < filled ? "█" : "░";
  return line + tail;
}

std::string Progress::plain_line(const StepResult& step, uint64_t total, uint64_t skipped, bool scaled, double steps_per_second) {
  return fmt::format("step {}  {}/{}  {}  {:.1f} steps/s", step.step, step.step + 1, total, numbers(step, skipped, scaled),
                     steps_per_second);
}

void Progress::update(const StepResult& step) {
  skipped_ += step.skipped;
  const uint64_t done = step.step + 1;
  const auto since_shown = screen_.now() - last_shown_;
  if (!screen_.terminal) {
    const uint64_t interval = std::max<uint64_t>(1, (total_ - first_) / kPlainLines);
    if (done == first_ + 1 || done % interval == 0 || done == total_ || since_shown >= kPlainInterval)
      line(plain_line(step, total_, skipped_, scaled_, steps_per_second(done)));
  }
  if (step.test) {
    const std::string accuracy = step.test->accuracy ? fmt::format(", accuracy {:.4f},", *step.test->accuracy) : "";
    line(fmt::format("test {}{} after {}", loss_text(step.test->loss), accuracy, count_of(done, "step")));
  }
  if (screen_.terminal && (since_shown >= kRedraw || done == total_))
    draw(bar_line(step, total_, skipped_, scaled_, steps_per_second(done), terminal_width()));
}

void Progress::work(std::string_view what, double share) {
  const auto since_shown = screen_.now() - last_shown_;
  const std::string text = share > 0 ? fmt::format("{}: {:.0f}%", what, std::floor(100 * share)) : std::string(what);
  if (screen_.terminal) {
    if (share == 0 || since_shown >= kRedraw) draw(text);
  } else if (share == 0 || since_shown >= kPlainInterval) {
    line(text);
  }
}

void Progress::finish() {
  if (drawn_) screen_.write("\n");
  drawn_ = false;
}

}  // namespace ulpscope::cli
