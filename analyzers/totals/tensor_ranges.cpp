#include "ulpscope/analyzers/totals/tensor_ranges.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

void ScaledRows::add(const ScaledRows& other) {
  rows += other.rows;
  seen += other.seen;
  largest_excess = std::max(largest_excess, other.largest_excess);
  at_own_scale += other.at_own_scale;
  flush_loss.add(other.flush_loss);
  overflow_kept.add(other.overflow_kept);
  overflow_skipped.add(other.overflow_skipped);
  keep_first(first_overflow, other.first_overflow);
  keep_first(first_lossy, other.first_lossy);
  keep_first(first_stale, other.first_stale);
}

bool is_stale(const RoundingBounds& seen, const RoundingBounds& at_own_scale, double limit) {
  const double lost = share(seen.flushed.lower, seen.base);
  return lost > limit && at_own_scale.base > 0 &&
         share(at_own_scale.flushed.upper, at_own_scale.base) <= std::max(limit, 0.25 * lost);
}

uint64_t became_infinite(const TensorRow& row, DType dtype) {
  const bool was_rounded = row.statistics.nonfinite() == 0 && row.rounding_known && !is_quantized(dtype);
  return was_rounded ? row.rounding.infinite() : 0;
}

void NonfiniteRows::add(const NonfiniteRows& other) {
  rows += other.rows;
  infinite += other.infinite;
  steps.add(other.steps);
  if (!other.first || (first && *first <= *other.first)) return;
  first = other.first;
  overflowed = other.overflowed;
}

void ZeroTail::add(bool is_zero, uint64_t step) {
  if (!is_zero) {
    *this = {0, false, {}};
    return;
  }
  if (rows++ == 0) since = step;
}

void ZeroTail::append(const ZeroTail& later) {
  if (!later.all) {
    *this = later;
    return;
  }
  rows += later.rows;
  if (!since) since = later.since;
}

void ZeroTail::beside(const ZeroTail& other) {
  if (other.rows == 0 && other.all) return;  // it had no rows
  if (rows == 0 && all) {
    *this = other;
    return;
  }
  if (rows == 0 || other.rows == 0) {
    *this = {0, false, {}};
    return;
  }
  rows += other.rows;
  all = all && other.all;
  since = std::max(*since, *other.since);
}

// A later row without a scale of its own belongs to the others as soon as one before it had a history.
void TensorRanges::append(const TensorRanges& later) {
  ZeroTail tail = zeros;
  tail.append(later.zeros);
  if (scaled.seen.base == 0) {
    beside(later);
  } else {
    const ScaledRows without = std::exchange(before_history, {});
    beside(later);
    scaled.add(std::exchange(before_history, without));
  }
  zeros = tail;
}

void TensorRanges::beside(const TensorRanges& other) {
  totals.add(other.totals);
  used += other.used;
  nonfinite.add(other.nonfinite);
  masked.add(other.masked);
  noise_rows += other.noise_rows;
  if (vanished_steps == 0) vanished_after = other.vanished_after;
  vanished_steps += other.vanished_steps;
  keep_first(first_vanished, other.first_vanished);
  keep_first(first_saturated, other.first_saturated);
  keep_first(first_flushed, other.first_flushed);
  before_history.add(other.before_history);
  scaled.add(other.scaled);
  input.nonzero += other.input.nonzero;
  input.flushed += other.input.flushed;
  starved_rows += other.starved_rows;
  least_scale = std::min(least_scale, other.least_scale);
  in_fp16 += other.in_fp16;
  read_in_fp16 += other.read_in_fp16;
  raised += other.raised;
  kept_headroom = std::fmin(kept_headroom, other.kept_headroom);
  kept_largest = std::max(kept_largest, other.kept_largest);
  zeros.beside(other.zeros);
}

void RunRanges::append(const RunRanges& later) {
  tensors.append(later.tensors);
  add_counts(later);
}

void RunRanges::beside(const RunRanges& other) {
  tensors.beside(other.tensors);
  add_counts(other);
}

void RunRanges::add_counts(const RunRanges& other) {
  backward_passes += other.backward_passes;
  gradients_without_values += other.gradients_without_values;
  saturated_above_100000 = saturated_above_100000 || other.saturated_above_100000;
}

}  // namespace ulpscope
