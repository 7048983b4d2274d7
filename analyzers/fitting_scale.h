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

#include "ulpscope/analyzers/read_as_zero.h"
#include "ulpscope/analyzers/run_analysis.h"
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
  void add(const FlushCounts& other);  // of the same threshold
  const MagnitudeThreshold& threshold() const { return flushed_; }
  // The least k at which the share flushed is at most `limit`; nullopt where there is no nonzero element, or none is ever flushed.
  std::optional<ExponentBounds> smallest_fitting(double limit) const;

 private:
  static constexpr int kFirst = -320, kLast = 320;  // exponents of |x| / S, clamped
  void make_room();
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

// `hidden`: some rows were no evidence.
struct TensorFit {
  std::optional<ExponentBounds> largest;
  // Of the rows of which subnormals are numbers, and of those of which an op reads them as zero.
  std::array<std::unique_ptr<FlushCounts>, 2> flushes;
  bool hidden = false;

  void append(const TensorFit& later);
  void beside(const TensorFit& other) { append(other); }
};

struct StepFit {
  uint64_t step = 0;
  std::optional<ExponentBounds> largest, smallest;
  bool hidden = false;

  bool fits_like(const StepFit& other) const { return largest == other.largest && smallest == other.smallest; }
  void beside(const StepFit& other);  // the same step of another rank
};

struct RunFits {
  struct Count {
    uint64_t rows = 0;
    void append(const Count& later) { rows += later.rows; }
    void beside(const Count& other) { rows += other.rows; }
  };
  PerTensor<TensorFit> tensors;
  PerTensor<Count> flushed;    // rows of activation gradients of which too much was flushed
  std::vector<StepFit> steps;  // where it differs from the step before
  StepSet hidden_steps;

  void append(const RunFits& later);
  void beside(const RunFits& other);
};

// What fits the steps before the run broke.
struct FittingScales {
  struct Tensor {
    std::optional<ExponentBounds> largest, smallest;
    bool hidden = false;
  };
  std::vector<std::optional<Tensor>> tensors;  // of which there were rows
  std::vector<StepFit> steps;                  // where it differs from the step before
  StepFit run;                                 // over the run; its step is not used
  uint64_t hidden_steps = 0;
  // The tensor that decides, where there is one.
  std::optional<uint32_t> decides_largest, decides_smallest;
  std::vector<uint64_t> flushed_rows;  // by tensor, of all steps: RunFits::flushed
  const FloatFormat* what_if = nullptr;
};

class FittingScale {
 public:
  // `what_if`: the format that computed gradients are rounded to; nullptr: those that they were rounded to, or if there are none
  // FP16.
  explicit FittingScale(double flushed_limit, const FloatFormat* what_if = nullptr) : asked_(what_if), limit_(flushed_limit) {}
  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(FittingScale&& other) { fits_.merge(std::move(other.fits_)); }
  TablesRead reads() const { return {}; }

  FittingScales result() const;

 private:
  void add(const TensorRow& row, const Block& block, RunFits& fits);

  const FloatFormat* asked_;
  const FloatFormat* what_if_ = nullptr;
  double limit_;
  const AnalysisContext* context_ = nullptr;
  std::optional<FlushedUpstream> upstream_;
  std::optional<ReadAsZero> read_as_zero_;
  FlushCounts row_{{}};          // of one row at a time
  std::optional<StepFit> step_;  // the current one, once it has had a row
  ByRank<RunFits> fits_;
};

}  // namespace ulpscope
