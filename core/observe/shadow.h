// The observer that computes ops again, from the same inputs, in a wider type: what of an output's error its own op made. It adds
// two measures to the row of each output in 16 bits: the Euclidean norm of the difference between what was stored and the wide
// result, and of what one rounding of the wide result costs, each over the norm of that result. Where the first is the second, the
// op is as exact as its type allows; sums that were kept in a narrower accumulator, or formed of factors that were rounded, show as
// more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/core/engine/observer.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

enum class ShadowType : uint8_t { fp32, fp64 };
const char* name_of(ShadowType type);

// The settings say what is computed again.
struct ShadowSettings {
  // In steps whose number is a multiple of it; 0: in eight of the run, where some op accumulates in FP16 or BF16.
  int64_t every = 0;
  bool enabled = true;
  std::vector<std::string> ops;  // by patterns of their names; empty: all
  ShadowType type = ShadowType::fp32;

  bool operator==(const ShadowSettings&) const = default;
};

// An output that was computed again. All three are in the shadow's type and one layout: what the run stored, the wide result, and
// that one rounded once to the output's type. The sums of squares are over the elements that are finite in all of them.
struct ShadowedOutput {
  const OpEvent& event;
  size_t slot = 0;
  TensorView stored, wide, rounded;
  double signal = 0;               // of the wide result
  double injected = 0, floor = 0;  // of the stored and of the rounded values less the wide ones
};

// Is told while ops run.
struct ShadowListener {
  std::function<void(const ShadowedOutput&)> output;
  std::function<void(std::string_view)> note;  // what could not be computed again, a sentence
};
// Both as measures and notes of a trace. The recorder outlives it.
ShadowListener recorded_shadow(Recorder& recorder);

class ShadowObserver : public Observer {
 public:
  static constexpr int kSteps = 8;

  // The listener's recorder, where it has one, is to be told of each op before this observer is. Ops run on a CPU backend of the
  // shadow's own, so that the memory they take is not the run's. `steps`: of the run in all.
  ShadowObserver(ShadowListener listener, const ShadowSettings& settings, const CpuOptions& cpu, uint64_t steps);
  ~ShadowObserver() override;

  void begin_step(uint64_t step);
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  void after(const OpEvent& event) override;

  // The time that it took in this step.
  double seconds() const { return seconds_; }

 private:
  struct Memory;
  bool is_wanted(const OpEvent& event) const;
  // These have memory of the shadow's own: dense, in the wide type where the view's is narrower, or of the view's layout and that
  // type.
  TensorView made(const TensorView& view);
  TensorView like(TensorView view, DType dtype);
  TensorView widened(const TensorView& view);
  bool is_narrower(DType dtype) const;
  void copy(std::string_view op, const TensorView& from, const TensorView& to);  // op: "copy" or "cast"
  void compute(const OpEvent& event);
  void compare(const OpEvent& event);
  void refuse(const OpEvent& event, const char* why);

  const ShadowListener listener_;
  const ShadowSettings settings_;
  const DType type_;
  const std::unique_ptr<Backend> backend_;
  std::set<uint64_t> steps_;                    // in which it is, where it is not in each of so many
  bool is_on_ = false;                          // in this step
  std::vector<std::unique_ptr<Memory>> taken_;  // of the op that goes on
  std::vector<TensorView> wide_;                // its outputs; empty: it is not computed again
  std::set<std::string, std::less<>> refused_;  // ops that could not be computed again
  double seconds_ = 0;
};

}  // namespace ulpscope
