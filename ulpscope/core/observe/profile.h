// Observers that measure where the time of training goes: computing, op by op, and observing.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/context.h"

namespace ulpscope {

// The calls of one op in one phase.
struct ProfileEntry {
  std::string_view op;
  Phase phase = Phase::forward;
  uint64_t calls = 0;
  double seconds = 0;  // within the backend

  double seconds_per_call() const { return calls > 0 ? seconds / static_cast<double>(calls) : 0; }
};

// Times in seconds: in ops, in recording, and in what is neither (data, dispatch, autograd) add up to the total.
struct Profile {
  std::vector<ProfileEntry> entries;  // those that took longest first
  double recording_seconds = 0;       // of the engine's thread, within observers and the recorder
  double total_seconds = 0;           // of all steps, with evaluation

  double computing_seconds() const;  // in ops
  double other_seconds() const { return total_seconds - computing_seconds() - recording_seconds; }
  // Of the time in ops.
  double share_of(const ProfileEntry& entry) const;
};

// Stands before and after the other observers: what passes between the two moments of its first and last one is theirs, and what
// passes between their `before` and `after` is the backend's. A device that computes on is waited for after each op.
class Profiler {
 public:
  // The backend outlives the profiler.
  explicit Profiler(Backend& backend) : first_(*this, backend), last_(*this) {}
  Profiler(const Profiler&) = delete;

  // `observers` as the context is to have them. The profiler outlives the list.
  std::vector<Observer*> around(const std::vector<Observer*>& observers);
  // Time that was measured elsewhere.
  void add_recording(double seconds) { recording_seconds_ += seconds; }
  void add_total(double seconds) { total_seconds_ += seconds; }
  Profile profile() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Entries = std::map<std::pair<const Op*, Phase>, ProfileEntry>;

  struct First : Observer {
    First(Profiler& profiler, Backend& computing) : owner(profiler), backend(computing) {}
    void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
    void after(const OpEvent& event) override;
    Profiler& owner;
    Backend& backend;
  };
  struct Last : Observer {
    explicit Last(Profiler& profiler) : owner(profiler) {}
    void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
    void after(const OpEvent& event) override;
    Profiler& owner;
  };
  // Seconds since the moment before, and from here on.
  double lap();

  First first_;
  Last last_;
  Clock::time_point moment_;
  Entries entries_;
  double recording_seconds_ = 0, total_seconds_ = 0;
};

}  // namespace ulpscope
