// Observers that measure where the time of training goes: computing, op by op, and observing; and what the computing is made of.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/context.h"
#include "ulpscope/emulation/product_shape.h"

namespace ulpscope {

// The calls of one op in one phase and module, or a sum of such.
struct ProfileEntry {
  std::string_view op = {};
  Phase phase = Phase::forward;
  uint64_t calls = 0;
  double seconds = 0;  // within the backend
  std::string_view module = {};
  double flop = 0;   // floating-point operations, as the op's definition counts them
  double bytes = 0;  // of inputs and outputs, each read or written once

  double seconds_per_call() const { return calls > 0 ? seconds / static_cast<double>(calls) : 0; }
};

// The forward calls of an op of one module that are matrix products of factors of one type and shape.
struct ProfiledProduct {
  std::string_view op = {}, module = {};
  DType dtype = DType::f32;  // of the first factor
  ProductShape shape;
  uint64_t calls = 0;

  // Whether tensor cores take it as it is.
  bool is_eligible() const { return is_narrow(*info(dtype).format) && shape.is_aligned(); }
};

// What the machine can do at most: how fast it computes, and how fast memory comes and goes.
struct Roofline {
  double flop_per_second = 0, bytes_per_second = 0;

  // The share that an entry reached of what its operations and bytes allow.
  double share_reached(const ProfileEntry& entry) const;
};
// Measures both, in about a second, with a product of FP32 matrices and with a sum of tensors that no cache holds. There has to be
// a current context with this backend.
Roofline measure_roofline(Backend& backend);

// Times in seconds: in ops, in recording, and in what is neither (data, dispatch, autograd) add up to the total.
struct Profile {
  std::vector<ProfileEntry> entries;      // those that took longest first
  double recording_seconds = 0;           // of the engine's thread, within observers and the recorder
  double total_seconds = 0;               // of all steps, with evaluation
  std::vector<ProfiledProduct> products;  // those with most operations, over all calls, first
  Roofline roofline;

  double computing_seconds() const;  // in ops
  double other_seconds() const { return total_seconds - computing_seconds() - recording_seconds; }
  // Of the time in ops.
  double share_of(const ProfileEntry& entry) const;
  // Sums over modules, and over the ops and phases of a module.
  std::vector<ProfileEntry> by_op() const;
  std::vector<ProfileEntry> by_module() const;
};

// Stands before and after the other observers: what passes between the two moments of its first and last one is theirs, and what
// passes between their `before` and `after` is the backend's. A device that computes on is waited for after each op.
class Profiler {
 public:
  // The backend outlives the profiler.
  explicit Profiler(Backend& backend, const Roofline& roofline = {}) : first_(*this, backend), last_(*this), roofline_(roofline) {}
  Profiler(const Profiler&) = delete;

  // `observers` as the context is to have them. The profiler outlives the list.
  std::vector<Observer*> around(const std::vector<Observer*>& observers);
  // Time that was measured elsewhere.
  void add_recording(double seconds) { recording_seconds_ += seconds; }
  void add_total(double seconds) { total_seconds_ += seconds; }
  Profile profile() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Modules are interned.
  using Entries = std::map<std::tuple<const Op*, Phase, const std::string*>, ProfileEntry>;
  using Products = std::map<std::tuple<const Op*, const std::string*, DType, ProductShape>, uint64_t>;  // how many calls

  struct First : Observer {
    First(Profiler& profiler, Backend& computing) : owner(profiler), backend(computing) {}
    void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
    void after(const OpEvent& event) override;
    bool sees_recomputed() const override { return true; }
    Profiler& owner;
    Backend& backend;
  };
  struct Last : Observer {
    explicit Last(Profiler& profiler) : owner(profiler) {}
    void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
    void after(const OpEvent& event) override;
    bool sees_recomputed() const override { return true; }
    Profiler& owner;
  };
  // Seconds since the moment before, and from here on.
  double lap();

  First first_;
  Last last_;
  Clock::time_point moment_;
  Entries entries_;
  Products products_;
  double recording_seconds_ = 0, total_seconds_ = 0;
  Roofline roofline_;
};

}  // namespace ulpscope
