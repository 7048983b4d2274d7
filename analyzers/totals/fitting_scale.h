// Which power-of-two loss scales fit a recording. The largest: the largest 2^k at which no recorded rounding of a gradient
// overflows. The smallest: the least 2^k at which of every gradient tensor at most a limited share is flushed, or a part of the
// norm that does not matter. Both per step and over the run, with bounds (fitting_bounds.h). A bias whose gradients are rounding
// errors of their sums decides nothing (rounding_noise.h), nor do gradients of a loss that was NaN or infinite, and NaN and
// infinities that came from the forward pass say nothing of the largest. Where gradients lie behind a rounding that flushed more
// than fits they are no evidence (upstream.h): then the largest is known from above only, and the smallest from below.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/fitting_bounds.h"
#include "ulpscope/analyzers/totals/read_as_zero.h"
#include "ulpscope/analyzers/totals/rounding_noise.h"
#include "ulpscope/analyzers/totals/upstream.h"

namespace ulpscope {

// `hidden`: some rows were no evidence.
struct TensorFit {
  std::optional<ExponentBounds> largest;
  // Of the rows of which subnormals are numbers, and of those of which an op reads them as zero.
  std::array<std::unique_ptr<FlushCounts>, 2> flushes;
  bool hidden = false;
  bool more_than_noise = false;  // some row held more than the rounding errors of its sums

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
  void see_nonfinite(const TensorRow& row);
  // Its NaN and infinities came from the forward pass: no rounding had made a gradient of that backward pass infinite before.
  bool is_of_forward(const TensorRow& row) const;

  const FloatFormat* asked_;
  const FloatFormat* what_if_ = nullptr;
  double limit_;
  const AnalysisContext* context_ = nullptr;
  std::optional<FlushedUpstream> upstream_;
  std::optional<ReadAsZero> read_as_zero_;
  std::optional<RoundingNoise> noise_;
  FlushCounts row_{{}};          // of one row at a time
  std::optional<StepFit> step_;  // the current one, once it has had a row
  // Of the current step: micro-batches whose forward pass held NaN or infinities, and backward passes (micro-batch, loss) in which
  // a gradient overflowed.
  std::set<uint32_t> nonfinite_forward_;
  std::set<std::pair<uint32_t, uint8_t>> overflowed_;
  ByRank<RunFits> fits_;
};

}  // namespace ulpscope
