// Which power-of-two loss scales fit a recording. The largest: the largest 2^k at which no recorded rounding of a gradient
// overflows. The smallest: the least 2^k at which every gradient tensor's flushed share is at most a limit. Both per step and over
// the run, as k, with bounds: a bin of the histogram that straddles a threshold can be decided only by the recorded extremes. Where
// gradients lie behind a rounding that flushed more than the limit they are no evidence (upstream.h): then the largest is known
// from above only, and the smallest from below.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/analyzers/upstream.h"
#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

// Exponents k, lower <= k <= upper. kNoLower, kNoUpper: not bounded on that side.
struct ExponentBounds {
  static constexpr int kNoLower = std::numeric_limits<int>::min();
  static constexpr int kNoUpper = std::numeric_limits<int>::max();
  int lower = kNoLower;
  int upper = kNoUpper;
  bool operator==(const ExponentBounds&) const = default;
};

// The greater of both bounds.
void raise(std::optional<ExponentBounds>& into, const ExponentBounds& other);

// The scale 2^k as a cell; Unknown without bounds on both sides.
Cell scale_cell(const std::optional<ExponentBounds>& bounds);

// The largest k at which rounding x * 2^k / S to `format` overflows nowhere in the row. nullopt: nothing can overflow, or nothing
// is known. Where the row holds NaN or Inf the values behind them are not known, only that S itself is too large.
std::optional<ExponentBounds> largest_fitting(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format);

// How many elements rounding x * 2^k / S flushes, for every k at once; adds over rows. Where the mode's direction depends on signs
// or random bits: at least and at most.
class FlushCounts {
 public:
  // `flushed`: of the rounding (magnitude_thresholds).
  explicit FlushCounts(const MagnitudeThreshold& flushed) { restart(flushed); }
  // Without rows, for this threshold.
  void restart(const MagnitudeThreshold& flushed);
  // False: the row tells nothing (no histogram, or NaN and Inf in it).
  bool add(const TensorRow& row, const TensorInfo& tensor);
  // The least k at which the share flushed is at most `limit`; nullopt where there is no nonzero element, or none is ever flushed.
  std::optional<ExponentBounds> smallest_fitting(double limit) const;

 private:
  static constexpr int kFirst = -320, kLast = 320;  // exponents of |x| / S, clamped
  void add_sure(const TensorRow& row, bool stored);
  void add_maybe(const TensorRow& row, bool stored);
  void add_at(std::vector<uint64_t>& counts, int exponent, uint64_t n);
  std::optional<int> highest_threshold(const std::vector<uint64_t>& counts, uint64_t start, double budget) const;

  MagnitudeThreshold flushed_{};
  // Entry j: what the number of elements with |x| / S <= m 2^j gains between j - 1 and j, at least (sure) and at most (maybe). m is
  // the significand, from 1 up to 2, of the threshold below which all are flushed (sure), or some (maybe).
  std::vector<uint64_t> sure_, maybe_;
  int first_used_ = kLast, last_used_ = kFirst;  // all other entries are 0
  uint64_t base_ = 0;
  uint64_t lost_ = 0;       // flushed before the statistics were taken: where they lie is not known
  bool uncounted_ = false;  // the same, and not even how many
};

// FP16 where no gradient was rounded: then the question is which scale FP16 would need. nullptr otherwise.
const FloatFormat* format_to_ask(const Snapshot& reader);

class FittingScale : public RowConsumer {
 public:
  // `what_if`: the format that computed gradients are rounded to; nullptr: those that they were rounded to. Steps from
  // `broken_from` on are no evidence.
  FittingScale(const Snapshot& reader, const Selection& selection, const FloatFormat* what_if, double flushed_limit,
               uint64_t broken_from = UINT64_MAX);
  void see(const TensorRow& row) override;
  void add(const TensorRow& row) override;
  void finish() override;

  // `hidden`: some rows, or some tensors' rows, were no evidence.
  struct StepFit {
    uint64_t step;
    std::optional<ExponentBounds> largest, smallest;
    bool hidden = false;
  };
  struct TensorFit {
    std::optional<ExponentBounds> largest, smallest;
    bool hidden = false;
  };
  const std::vector<StepFit>& steps() const { return steps_; }  // where it differs from the step before
  const StepFit& run() const { return run_; }                   // over the run; its step is not used
  const std::vector<std::optional<TensorFit>>& tensors() const { return fits_; }
  // The tensor that decides, where there is one.
  std::optional<uint32_t> decides_largest() const { return decides_largest_; }
  std::optional<uint32_t> decides_smallest() const { return decides_smallest_; }
  uint64_t hidden_steps() const { return hidden_steps_; }
  const FlushedUpstream& upstream() const { return upstream_; }
  // Whether an op of that run reads the tensor's subnormals as zero, in the format that is asked for: then they are as good as
  // flushed by its own rounding.
  bool is_read_as_zero(const TensorRow& row) const;
  const FloatFormat* what_if() const { return what_if_; }

 private:
  void end_step();

  const Selection& selection_;
  FlushedUpstream upstream_;
  const FloatFormat* what_if_;
  double limit_;
  uint64_t broken_from_;
  FlushCounts row_{{}};  // of one row at a time
  std::optional<StepFit> step_;
  std::vector<StepFit> steps_;
  StepFit run_{};
  std::vector<std::optional<TensorFit>> fits_;
  // By tensor: of the rows of which subnormals are numbers, and of those of which an op reads them as zero.
  std::vector<std::array<std::unique_ptr<FlushCounts>, 2>> flushes_;
  // Of each run of those that are read as one: is_read_as_zero by tensor, before the step `end`.
  struct ReadAsZero {
    uint64_t end;
    std::vector<bool> tensors;
  };
  std::vector<ReadAsZero> read_as_zero_;
  std::optional<uint32_t> decides_largest_, decides_smallest_;
  uint64_t hidden_steps_ = 0;
};

}  // namespace ulpscope
