// What the rows of one tensor say of its range, and those of all tensors of a run: what RangeFacts adds up.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/timeline.h"
#include "ulpscope/analyzers/totals/flush_loss.h"
#include "ulpscope/analyzers/totals/range_totals.h"

namespace ulpscope {

// Of rows that one rule scaled: in FP8, those with a scale that follows from a history, or those before there was one.
struct ScaledRows {
  uint64_t rows = 0;  // of which the rounding was counted
  RoundingBounds seen;
  double largest_excess = 0;    // in FP8: the largest magnitude over the format's largest
  RoundingBounds at_own_scale;  // with the quantization scale that takes each row's own largest magnitude to the format's largest
  FlushLoss flush_loss;         // of gradients without those of steps that were skipped or fitted
  StepSet overflow_kept, overflow_skipped;  // steps with overflow: those that were taken, and those that were skipped
  std::optional<RowPosition> first_overflow;
  // In FP8: the first row that flushed more than flushed_limit, and the first of which the scale was stale (is_stale).
  std::optional<RowPosition> first_lossy, first_stale;

  void add(const ScaledRows& other);
};

// A scale is stale where the one that follows from the tensor itself would have kept what it flushed: at most a quarter is lost at
// that. `limit`: flushed_limit, which the share lost has to exceed.
bool is_stale(const RoundingBounds& seen, const RoundingBounds& at_own_scale, double limit);

// Finite values of the row that became infinite when they were rounded.
uint64_t became_infinite(const TensorRow& row, DType dtype);

// Rows with NaN or Inf; of gradients those of steps that were not skipped.
struct NonfiniteRows {
  uint64_t rows = 0;
  std::optional<RowPosition> first;
  uint64_t overflowed = 0;  // in the first: finite values that became infinite when they were rounded
  uint64_t infinite = 0;    // rows with an infinity
  StepSet steps = {};       // of the rows

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
  RoundingBounds used;  // as totals.seen, without gradients of steps that were skipped or fitted: what those lost is lost to nobody
  NonfiniteRows nonfinite;
  NonfiniteRows masked;         // rows of what may be a mask that hold one, which are not among those
  uint64_t noise_rows = 0;      // rows of sums that hold nothing but what their terms were rounded by
  uint64_t vanished_steps = 0;  // rows that were the first rounding of a backward pass, not of a fitted step, and flushed every
                                // nonzero element
  std::optional<uint32_t> vanished_after;  // the tensor recorded before the first of them
  std::optional<RowPosition> first_vanished, first_saturated, first_flushed;
  ScaledRows before_history, scaled;  // before_history: the first rows of delayed scaling, whose scale is 1
  InputFlushCounts input;             // of its op, over its rows
  uint64_t starved_rows = 0;          // those in which all of an input was read as zero
  double least_scale = INFINITY;      // the least loss scale that its rows contained
  WhatIfTotals in_fp16;               // of computed gradients, without their scale, as long as none was in a narrow type
  RoundingBounds read_in_fp16;      // of rows that an op would read as zero where they were subnormal in FP16, without their scale
  CountBounds raised;               // elements that to nearest would be zero, and are not
  double kept_headroom = kUnknown;  // the least, of steps that were not skipped
  double kept_largest = 0;          // the magnitude that it is of, as stored
  ZeroTail zeros;

  void append(const TensorRanges& later);
  void beside(const TensorRanges& other);
};

struct RunRanges {
  PerTensor<TensorRanges> tensors;
  uint64_t backward_passes = 0;           // that had a rounding
  uint64_t gradients_without_values = 0;  // rows of computed gradients, counts of which were taken alone
  bool saturated_above_100000 = false;    // at such a loss scale a gradient overflowed, and its rounding kept the largest number

  void append(const RunRanges& later);
  void beside(const RunRanges& other);

 private:
  void add_counts(const RunRanges& other);
};

}  // namespace ulpscope
