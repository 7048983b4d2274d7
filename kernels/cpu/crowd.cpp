#include "ulpscope/kernels/cpu/crowd.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ulpscope::cpu {
namespace {

// A crowd that is there for less than this is not worth a thread. Reading what the watch reads takes some 20 us.
constexpr std::chrono::milliseconds kInterval{100};

std::optional<Scheduled> scheduled(const std::filesystem::path& thread) {
  std::string line;
  std::getline(std::ifstream(thread / "schedstat"), line);
  return Scheduled::of(line);
}

Scheduled all_threads() {
  Scheduled all;
  std::error_code ended;  // a thread's folder goes with it
  for (auto at = std::filesystem::directory_iterator("/proc/self/task", ended);
       !ended && at != std::filesystem::directory_iterator(); at.increment(ended)) {
    const Scheduled one = scheduled(at->path()).value_or(Scheduled());
    all.ran += one.ran;
    all.waited += one.waited;
  }
  return all;
}

}  // namespace

std::optional<Scheduled> Scheduled::of(std::string_view schedstat) {
  Scheduled read;
  if (std::sscanf(std::string(schedstat).c_str(), "%lf %lf", &read.ran, &read.waited) != 2) return {};
  return read;
}

bool is_crowded(bool was_crowded, const Scheduled& threads) {
  const double both = threads.ran + threads.waited;  // below 0 where a thread ended
  return both > 0 && threads.waited > (was_crowded ? 0.3 : 0.15) * both;
}

std::shared_ptr<Crowd> Crowd::watched_for(int threads) {
  static std::mutex mutex;
  static std::weak_ptr<Crowd> shared;
  if (threads < 2 || std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return nullptr;
  if (!scheduled("/proc/self")) return nullptr;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Crowd> crowd = shared.lock();
  if (!crowd) shared = crowd = std::make_shared<Crowd>(threads);
  return crowd;
}

Crowd::Crowd(int threads) : extra_threads_(std::max(0, omp_get_num_procs() - threads) + 1), watcher_([this] { watch(); }) {}

Crowd::~Crowd() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  told_.notify_all();
  watcher_.join();
  if (holder_.joinable()) holder_.join();
}

// libgomp spins for a microsecond only where there are more OpenMP threads than cores (its manual: GOMP_SPINCOUNT), and looks at
// that each time that it waits. A thread that had a parallel region keeps the region's other threads, asleep, until it ends, and
// they count.
void Crowd::hold() {
#pragma omp parallel num_threads(extra_threads_ + 1)
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the region is not empty
  std::unique_lock lock(mutex_);
  told_.wait(lock, [&] { return ending_ || !crowded_; });
}

void Crowd::watch() {
  Scheduled last = all_threads();
  std::unique_lock lock(mutex_);
  while (!told_.wait_for(lock, kInterval, [&] { return ending_; })) {
    const Scheduled now = all_threads();
    const bool crowded = is_crowded(crowded_, {now.ran - last.ran, now.waited - last.waited});
    last = now;
    if (crowded == crowded_) continue;
    crowded_ = crowded;
    if (crowded) {
      holder_ = std::thread([this] { hold(); });
    } else {
      told_.notify_all();
      lock.unlock();
      holder_.join();
      lock.lock();
    }
  }
}

}  // namespace ulpscope::cpu
