// What must hold of the values of a row, beyond each being one that its column can have: a row of which it does not is damage, as
// much as a broken checksum. Every row is checked where it is read. Internal to trace/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::trace_detail {

// `holds` takes a row; where it is false, the row's `column` is not what it should be: `expected`.
template <typename Holds>
struct Rule {
  const char* column;
  const char* expected;
  Holds holds;
};
template <typename Holds>
Rule(const char*, const char*, Holds) -> Rule<Holds>;

// No tensor has more elements, and no machine more bytes.
inline constexpr uint64_t kMostElements = uint64_t{1} << 48;
inline constexpr uint64_t kMostMemory = uint64_t{1} << 57;

constexpr uint64_t sum_of(std::initializer_list<uint64_t> counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum = count > UINT64_MAX - sum ? UINT64_MAX : sum + count;
  return sum;
}
// INT64_MAX where there are more.
inline int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(elements, size, &elements)) return INT64_MAX;
  return elements;
}
// What values are multiplied by. Its reciprocal is finite, too.
inline bool is_factor(double value) { return std::isnormal(value) && value > 0; }
inline bool is_magnitude(double value) { return std::isfinite(value) && value >= 0; }

// What the sums of some values can be, the largest of which is known. Beyond what FP64 can hold, anything; whatever adds them up
// may round.
inline bool is_sum_of(double sum, double largest, uint64_t count) {
  const double most = 1.01 * largest * static_cast<double>(count);
  return std::isinf(most) || std::fabs(sum) <= most;
}
inline bool is_sum_of_squares(double sum, double largest) {
  const double square = largest * largest;
  return sum >= 0.99 * square || (std::isinf(square) || !std::isnormal(square));
}

template <typename Row>
struct Rules {
  static constexpr auto all = std::tuple<>();
};

#define RULE(column, expected, ...) (Rule{column, expected, [](const auto& row) -> bool { return __VA_ARGS__; }})

template <>
struct Rules<RunInfo> {
  static constexpr auto all =
      std::make_tuple(RULE("world_size", "at least 1", row.world_size >= 1),
                      RULE("rank", "from 0 to world_size - 1", row.rank >= 0 && row.rank < row.world_size),
                      RULE("parent_step", "at least -1", row.parent_step >= -1), RULE("every", "at least 1", row.every >= 1),
                      RULE("growth_interval", "at least 0", row.growth_interval >= 0),
                      RULE("growth_factor", "finite and at least 0", is_magnitude(row.growth_factor)),
                      RULE("backoff_factor", "finite and at least 0", is_magnitude(row.backoff_factor)));
};

template <>
struct Rules<TensorInfo> {
  static constexpr auto all = std::make_tuple(
      RULE("dtype", "a floating-point type, as gradients have", !is_gradient(row.role) || info(row.dtype).format != nullptr));
};

template <>
struct Rules<StepRow> {
  static constexpr auto all = std::make_tuple(
      RULE("scale_before", "at least 0", row.scale_before >= 0), RULE("scale_after", "at least 0", row.scale_after >= 0),
      RULE("gradient_norm", "NaN or at least 0", !row.norm_known || !(row.gradient_norm < 0)),
      RULE("clipped_gradient_norm", "NaN or at least 0", !row.norm_known || !(row.clipped_gradient_norm < 0)),
      RULE("seconds", "finite and at least 0", is_magnitude(row.seconds)),
      RULE("peak_memory", "at most 2^57", row.peak_memory <= kMostMemory));
};

// Whether the histogram was read is not known here: where it was, Decoder compares it with the counts.
template <>
struct Rules<TensorRow> {
  static constexpr auto measured = Table<TensorRow>::measured;
  static constexpr auto all = std::make_tuple(
      RULE("scale", "a normal number above 0", is_factor(row.scale)),
      RULE("quantization_scale", "a normal number above 0", is_factor(row.quantization_scale)),
      RULE("count", "at most 2^48", row.statistics.count <= kMostElements),
      RULE("zeros", "with the nonfinite elements at most count",
           sum_of({row.statistics.nan, row.statistics.positive_infinity, row.statistics.negative_infinity, row.statistics.zeros}) <=
               row.statistics.count),
      RULE("negatives", "at most the finite nonzero elements",
           !measured(row) || row.statistics.negatives <= row.statistics.finite_nonzero()),
      RULE("largest", "finite, positive where an element is finite and nonzero, else 0",
           !measured(row) ||
               (is_magnitude(row.statistics.largest) && (row.statistics.largest > 0) == (row.statistics.finite_nonzero() > 0))),
      RULE("smallest", "at most largest, positive where an element is finite and nonzero, else 0",
           !measured(row) ||
               (row.statistics.smallest <= row.statistics.largest &&
                (row.statistics.smallest > 0) == (row.statistics.largest > 0) && !std::signbit(row.statistics.smallest))),
      RULE("sum", "no more than count times largest",
           !measured(row) || is_sum_of(row.statistics.sum, row.statistics.largest, row.statistics.finite_nonzero())),
      RULE("sum_of_squares", "at least 0, and the square of largest",
           !measured(row) ||
               (row.statistics.sum_of_squares >= 0 && is_sum_of_squares(row.statistics.sum_of_squares, row.statistics.largest))),
      RULE("flushed", "with subnormal and overflowed at most count",
           !row.rounding_known ||
               sum_of({row.rounding.flushed, row.rounding.subnormal, row.rounding.overflowed}) <= row.statistics.count),
      RULE("inexact_subnormal", "at most subnormal",
           !row.rounding_known || row.rounding.inexact_subnormal <= row.rounding.subnormal),
      RULE("rescued", "with flushed at most count",
           !row.rounding_known || sum_of({row.rounding.flushed, row.rounding.rescued}) <= row.statistics.count),
      RULE("saturated", "at most overflowed", !row.rounding_known || row.rounding.saturated <= row.rounding.overflowed),
      RULE("input_flushed", "at most input_nonzero", row.input.flushed <= row.input.nonzero),
      RULE("input_nonzero", "at most 2^48", row.input.nonzero <= kMostElements));
};

template <>
struct Rules<SourceInfo> {
  static constexpr auto all = std::make_tuple(RULE("samples", "at most 2^48", row.samples <= kMostElements),
                                              RULE("first_sample", "at most 2^48", row.first_sample <= kMostElements),
                                              RULE("row_step", "at most 2^48", row.row_step <= kMostElements),
                                              RULE("byte_step", "at most 2^48", row.byte_step <= kMostElements));
};

template <>
struct Rules<OpInfo> {
  static constexpr auto all = std::make_tuple(
      RULE("function", "one of the op's kind, or other", row.function == OpFunction::other || kind_of(row.function) == row.kind));
};

// A norm is NaN where a value is, and infinite where one is.
template <>
struct Rules<ParameterRow> {
  static constexpr auto all = std::make_tuple(RULE("weight_norm", "NaN or at least 0", !(row.weight_norm < 0)),
                                              RULE("update_norm", "NaN or at least 0", !(row.update_norm < 0)),
                                              RULE("decay_asked", "NaN or at least 0", !(row.decay_asked < 0)),
                                              RULE("nonzero", "at most 2^48", row.nonzero <= kMostElements),
                                              RULE("lost", "at most nonzero", row.lost <= row.nonzero),
                                              RULE("lost_to_decay", "at most lost", row.lost_to_decay <= row.lost));
};

template <>
struct Rules<SumRow> {
  static constexpr auto all = std::make_tuple(
      RULE("additions", "at most 2^48", row.additions <= kMostElements),
      RULE("elements", "at most 2^48", row.counts.elements <= kMostElements),
      RULE("addends", "at most elements", row.counts.addends <= row.counts.elements),
      RULE("absorbed", "at most addends", row.counts.absorbed <= row.counts.addends),
      RULE("asked", "a finite number of at least 0", row.counts.asked >= 0 && std::isfinite(row.counts.asked)),
      RULE("arrived", "a finite number", std::isfinite(row.counts.arrived)),
      RULE("magnitude", "a finite number of at least 0", row.counts.magnitude >= 0 && std::isfinite(row.counts.magnitude)));
};

template <>
struct Rules<EventRow> {
  static constexpr auto all = std::make_tuple(RULE("count", "at most 2^48", row.count <= kMostElements));
};

template <>
struct Rules<CaptureRow> {
  static constexpr auto all = std::make_tuple(
      RULE("operand", "at least -1", row.operand >= -1),
      RULE("element", "one of its shape, or -1", row.element >= -1 && row.element < elements_of(row.shape)),
      RULE("term", "at least -1", row.term >= -1),
      RULE("parent", "a node before this one, or -1 of node 0",
           row.node == 0 ? row.parent == -1 : row.parent >= 0 && row.parent < static_cast<int64_t>(row.node)),
      RULE("terms", "at least 0", row.terms >= 0),
      RULE("broke_at", "one of the terms, or -1", row.broke_at >= -1 && row.broke_at <= std::max<int64_t>(row.terms - 1, -1)),
      RULE("row_first", "at least 0 and at most 2^48", row.row.first >= 0 && static_cast<uint64_t>(row.row.first) <= kMostElements),
      RULE("row_step", "at least 0 and at most 2^48", row.row.step >= 0 && static_cast<uint64_t>(row.row.step) <= kMostElements),
      RULE("row_count", "at least 0 and at most 2^48", row.row.count >= 0 && static_cast<uint64_t>(row.row.count) <= kMostElements),
      RULE("row_run", "from 0 to row_count", row.row.run >= 0 && row.row.run <= row.row.count),
      RULE("row_nonfinite", "from 0 to row_count", row.row.nonfinite >= 0 && row.row.nonfinite <= row.row.count));
};

#undef RULE

}  // namespace ulpscope::trace_detail
