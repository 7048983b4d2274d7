// What the rows of each tensor say of its range: the counts behind `ulpscope ranges`, and what findings need besides them.
#pragma once

#include <optional>

#include "ulpscope/analyzers/flush_loss.h"
#include "ulpscope/analyzers/range_totals.h"
#include "ulpscope/analyzers/read_as_zero.h"
#include "ulpscope/analyzers/rounding_noise.h"
#include "ulpscope/analyzers/run_analysis.h"

namespace ulpscope {

// Of rows that one rule scaled: in FP8, those with a scale that follows from a history, or those before there was one.
struct ScaledRows {
  uint64_t rows = 0;  // of which the rounding was counted
  RoundingBounds seen;
  double largest_excess = 0;    // in FP8: the largest magnitude over the format's largest
  RoundingBounds at_own_scale;  // with the quantisation scale that takes each row's own largest magnitude to the format's largest
  FlushLoss flush_loss;
  StepSet overflow_kept, overflow_skipped;  // steps with overflow: those that were taken, and those that were skipped
  std::optional<RowPosition> first_overflow;

  void add(const ScaledRows& other);
};

// Rows with NaN or Inf; of gradients those of steps that were not skipped.
struct NonfiniteRows {
  uint64_t rows = 0;
  std::optional<RowPosition> first;
  uint64_t overflowed = 0;  // in the first: finite values that became infinite when they were rounded

  void add(const NonfiniteRows& other);
};

// Rows that were zero in every element though no rounding had made them so, at the end of a tensor's rows.
struct ZeroTail {
  uint64_t rows = 0;  // of them
  bool all = true;    // there were no others before
  std::optional<uint64_t> since;

  void add(bool is_zero, uint64_t step);
  void append(const ZeroTail& later);
  void beside(const ZeroTail& other);
};

struct TensorRanges {
  RangeTotals totals;
  NonfiniteRows nonfinite;
  uint64_t noise_rows = 0;      // rows of sums that hold nothing but what their terms were rounded by
  uint64_t vanished_steps = 0;  // rows that were the first rounding of a backward pass, and flushed every nonzero element
  std::optional<uint32_t> vanished_after;  // the tensor recorded before the first of them
  std::optional<RowPosition> first_vanished, first_saturated, first_flushed;
  ScaledRows before_history, scaled;  // before_history: the first rows of delayed scaling, whose scale is 1
  InputFlushCounts input;             // of its op, over its rows
  uint64_t starved_rows = 0;          // those in which all of an input was read as zero
  double least_scale = INFINITY;      // the least loss scale that its rows contained
  RoundingBounds read_in_fp16;      // of rows that an op would read as zero where they were subnormal in FP16, without their scale
  CountBounds raised;               // elements that to nearest would be zero, and are not
  double kept_headroom = kUnknown;  // the least, of steps that were not skipped
  ZeroTail zeros;

  void append(const TensorRanges& later);
  void beside(const TensorRanges& other);
};

struct RunRanges {
  PerTensor<TensorRanges> tensors;
  uint64_t backward_passes = 0;  // that had a rounding

  void append(const RunRanges& later);
  void beside(const RunRanges& other);
};

class RangeFacts {
 public:
  // `formats`: of the what-if tables.
  explicit RangeFacts(const std::vector<const FloatFormat*>& formats);
  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(RangeFacts&& other) { ranges_.merge(std::move(other.ranges_)); }
  TablesRead reads() const { return {}; }

  const ByRank<RunRanges>& ranges() const { return ranges_; }
  // In RangeTotals::what_if.
  size_t what_if_index(const FloatFormat& format) const;

 private:
  void see(const TensorRow& row);
  void add(const TensorRow& row, const Block& block, RunRanges& ranges);

  std::vector<const FloatFormat*> what_ifs_;  // that are answered: the tables', and FP16, which a finding asks for
  const AnalysisContext* context_ = nullptr;
  bool delays_scales_ = false;              // FP8 tensors take theirs from a history
  std::optional<ReadAsZero> read_in_fp16_;  // where the gradients were not rounded
  std::optional<RoundingNoise> noise_;
  ByRank<RunRanges> ranges_;

  // Of the step that blocks are of.
  std::vector<std::pair<uint32_t, uint8_t>> passes_seen_;  // (micro-batch, loss) whose backward pass has had its first rounding
  std::optional<uint32_t> previous_, before_;              // the tensors of the current row and of the one before
  bool first_rounding_ = false;                            // the current row is that of a backward pass
};

}  // namespace ulpscope
