#include "ulpscope/cli/stop_signals.h"

#include <pthread.h>

#include <chrono>

#include "ulpscope/cli/output.h"

namespace ulpscope::cli {

namespace {

const char* name_of(int signal) {
  switch (signal) {
    case 0:
      return "";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGHUP";
  }
}

constexpr std::chrono::milliseconds kOneRequest(100);

// Ends the thread's wait for a signal when there is nothing more to wait for.
int wake_up() { return SIGRTMIN; }

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&taken_);
  sigaddset(&taken_, wake_up());
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaddset(&taken_, number);
  }
  pthread_sigmask(SIG_BLOCK, &taken_, &mask_before_);
  thread_ = std::thread([this] { take(); });
}

StopSignals::~StopSignals() {
  ended_ = true;
  pthread_kill(thread_.native_handle(), wake_up());
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

const char* StopSignals::name() const { return name_of(first_); }

void StopSignals::take() {
  int number = 0;
  std::chrono::steady_clock::time_point first_came;
  while (sigwait(&taken_, &number) == 0 && !ended_) {
    if (number == wake_up()) continue;
    const auto now = std::chrono::steady_clock::now();
    if (first_.exchange(number) == 0) first_came = now;
    if (now - first_came < kOneRequest) continue;
    say("ulpscope: ended at once by {}, the second signal", name_of(number));
    std::signal(number, SIG_DFL);
    sigset_t last;
    sigemptyset(&last);
    sigaddset(&last, number);
    pthread_sigmask(SIG_UNBLOCK, &last, nullptr);
    std::raise(number);
  }
}

}  // namespace ulpscope::cli
