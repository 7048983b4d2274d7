// While every thread has a core, the quickest way to wait for another one is to spin, and libgomp spins for milliseconds. Where
// other processes take the cores, a spinning thread keeps the one that it waits for from running: a step of a small model takes ten
// times as long. So this process watches for a crowd, and its threads sleep instead of spinning while there is one.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

namespace ulpscope::cpu {

// Nanoseconds of a thread, or of several.
struct Scheduled {
  double ran = 0;     // on a core
  double waited = 0;  // for one, ready to run

  // By the text of a file /proc/PID/task/TID/schedstat: both, and a count. Nothing where it has not both.
  static std::optional<Scheduled> of(std::string_view schedstat);
};

// Whether threads that were scheduled so met others on their cores. To have been found in a crowd before is enough reason to demand
// more to be out of it: threads that sleep wait to be woken, even on an idle machine for a fifth of their time.
bool is_crowded(bool was_crowded, const Scheduled& threads);

class Crowd {
 public:
  // The process's watch; nullptr where there is nothing to do: for one thread, where the environment says how threads wait
  // (OMP_WAIT_POLICY, GOMP_SPINCOUNT), and where the system does not tell how threads are scheduled.
  static std::shared_ptr<Crowd> watched_for(int threads);

  explicit Crowd(int threads);
  ~Crowd();
  Crowd(const Crowd&) = delete;

 private:
  void watch();
  void hold();

  const int extra_threads_;  // with so many more than the computing ones there are more threads than cores
  std::mutex mutex_;
  std::condition_variable told_;
  bool ending_ = false, crowded_ = false;
  std::thread holder_, watcher_;
};

}  // namespace ulpscope::cpu
