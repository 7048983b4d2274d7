#include "ulpscope/recorder/aten/measures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ulpscope/emulation/tensor_statistics.h"

namespace ulpscope::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kBins = ExponentHistogram::kBins;

// Values fall between edges; the place of an edge is that of the values up to it, above the edge before.
enum Place : int {
  kNegativeInfinity = 0,
  kNegativeAbove = 1,  // beyond FP32's range
  kNegativeBin = 2,    // of the largest exponent; the others follow
  kNegativeBelow = kNegativeBin + kBins,
  kZero,
  kPositiveBelow,
  kPositiveBin,  // of the smallest exponent
  kPositiveAbove = kPositiveBin + kBins,
  kPositiveInfinity,
  kNaN
};
static_assert(static_cast<int>(kNaN) == ULPSCOPE_ATEN_EDGES && kNaN + 1 == ULPSCOPE_ATEN_ROUNDINGS);
static_assert(ULPSCOPE_ATEN_ROUNDINGS + 2 * (ULPSCOPE_ATEN_ROUNDING_EDGES + 1) == ULPSCOPE_ATEN_REALS);

enum Real : int { kSum = ULPSCOPE_ATEN_REALS, kSumOfSquares, kLargest, kSmallest };
static_assert(kSmallest + 1 == ULPSCOPE_ATEN_ROW);

// The smallest magnitude of a bin.
double begin_of(int bin) { return std::ldexp(1.0, bin == 0 ? -149 : bin - ExponentHistogram::kBias); }
double before(double value) { return std::nextafter(value, -kInfinity); }

std::array<double, ULPSCOPE_ATEN_EDGES> made_edges() {
  std::array<double, ULPSCOPE_ATEN_EDGES> edges{};
  const double beyond = std::ldexp(1.0, ExponentHistogram::kBias + 1);
  edges[kNegativeInfinity] = -kInfinity;
  edges[kNegativeAbove] = -beyond;
  for (int bin = 0; bin < kBins; ++bin) {
    edges[static_cast<size_t>(kNegativeBin + kBins - 1 - bin)] = -begin_of(bin);
    edges[static_cast<size_t>(kPositiveBin + bin)] = before(bin + 1 < kBins ? begin_of(bin + 1) : beyond);
  }
  edges[kNegativeBelow] = before(0.0);
  edges[kZero] = 0.0;
  edges[kPositiveBelow] = before(begin_of(0));
  edges[kPositiveAbove] = before(kInfinity);
  edges[kPositiveInfinity] = kInfinity;
  return edges;
}

const std::array<double, ULPSCOPE_ATEN_EDGES>& value_edges() {
  static const std::array edges = made_edges();
  return edges;
}

double real(const int64_t* row, int place) { return std::bit_cast<double>(row[place]); }

// Counts what became of magnitudes in a type that they were cast to.
struct Thresholds {
  double flush_last, subnormal_last, finite_last, rescue_last;
  Thresholds(DType type, double scale) {
    const FloatFormat& format = *info(type).format;
    flush_last = format.flush_threshold();
    subnormal_last = before(format.smallest_normal() - format.smallest_positive() / 2);
    finite_last = before(format.overflow_threshold());
    rescue_last = scale * flush_last;
  }
};

void add_values(const int64_t* row, ulpscope_statistics& to) {
  const auto count = [&](int place) { return static_cast<uint64_t>(row[place]); };
  to.nan += count(kNaN);
  to.positive_infinity += count(kPositiveInfinity);
  to.negative_infinity += count(kNegativeInfinity);
  to.zeros += count(kZero);
  for (int place = kNegativeInfinity; place <= kNaN; ++place) to.count += count(place);
  if (to.known < 2) return;
  for (int place = kNegativeAbove; place <= kNegativeBelow; ++place) to.negatives += count(place);
  for (int bin = 0; bin < kBins; ++bin) to.bins[bin] += count(kPositiveBin + bin) + count(kNegativeBin + kBins - 1 - bin);
  to.below_range += count(kNegativeBelow) + count(kPositiveBelow);
  to.above_range += count(kNegativeAbove) + count(kPositiveAbove);
  to.sum += real(row, kSum);
  to.sum_of_squares += real(row, kSumOfSquares);
  to.largest = std::max(to.largest, real(row, kLargest));
  const double smallest = real(row, kSmallest);
  if (std::isfinite(smallest) && smallest > 0) to.smallest = to.smallest == 0 ? smallest : std::min(to.smallest, smallest);
}

// Elements of one place all have what the magnitude at its end has.
void add_roundings(const int64_t* row, std::span<const double> edges, const Thresholds& thresholds, ulpscope_statistics& to) {
  for (size_t place = 1; place <= edges.size(); ++place) {
    const double last = place < edges.size() ? edges[place] : kInfinity;
    const auto* const counts = row + ULPSCOPE_ATEN_ROUNDINGS + 2 * place;
    const auto same = static_cast<uint64_t>(counts[0]), changed = static_cast<uint64_t>(counts[1]), count = same + changed;
    if (last <= thresholds.flush_last) {
      to.flushed += count;
    } else if (last > thresholds.finite_last) {
      to.overflowed += count;
    } else {
      if (last <= thresholds.subnormal_last) {
        to.subnormal += count;
        to.inexact_subnormal += changed;
      }
      if (last <= thresholds.rescue_last) to.rescued += count;
    }
  }
}

}  // namespace

const Measures::RoundingEdges& Measures::edges_of(DType cast_to, double scale) {
  const auto [at, is_new] = edges_.try_emplace({cast_to, scale});
  if (is_new) {
    const Thresholds thresholds(cast_to, scale);
    at->second = {0.0, thresholds.flush_last, thresholds.subnormal_last, thresholds.finite_last, thresholds.rescue_last};
    std::sort(at->second.begin(), at->second.end());
  }
  return at->second;
}

bool Measures::is_capturing(const Tensor& tensor) const {
  return tensor.is_present && tensor.is_on_host == 0 && adapter_.is_capturing(adapter_.context, &tensor) != 0;
}

bool Measures::ask(const ulpscope_aten_measure& measure, ulpscope_aten_rows& rows) {
  if (is_capturing(*measure.tensor)) return false;
  has_rows_ = true;
  return adapter_.measure(adapter_.context, &measure, &rows) != 0;
}

void Measures::take_output(ulpscope_op op, uint32_t slot, const Tensor& tensor, const Tensor* cast_from, double scale,
                           uint8_t level) {
  // PyTorch rounds FP64 twice on its way to 16 bits.
  const bool counts_roundings = cast_from != nullptr && cast_from->is_on_host == 0 &&
                                cast_from->type != static_cast<int32_t>(ScalarType::f64) && std::isnormal(scale) && scale > 0;
  OfOutput output{op, slot, {}, counts_roundings ? *dtype_of(tensor) : DType::f32, scale, level};
  ulpscope_aten_measure measure{};
  measure.kind = ULPSCOPE_ATEN_STATISTICS;
  measure.level = level;
  measure.tensor = &tensor;
  measure.edges = value_edges().data();
  if (counts_roundings) {
    measure.cast_from = cast_from;
    measure.rounding_edges = edges_of(output.cast_to, scale).data();
  }
  if (ask(measure, output.rows)) outputs_.push_back(output);
}

Number Measures::take(int32_t kind, const Tensor& tensor, double divisor) {
  ulpscope_aten_measure measure{};
  measure.kind = kind;
  measure.tensor = &tensor;
  ulpscope_aten_rows rows{};
  if (!ask(measure, rows)) return {std::nan(""), {}, 1, epoch_};
  return {0, rows, divisor, epoch_};
}
Number Measures::take_number(const Tensor& tensor, double divisor) { return take(ULPSCOPE_ATEN_NUMBER, tensor, divisor); }
Number Measures::take_square(const Tensor& tensor, double divisor) { return take(ULPSCOPE_ATEN_SQUARE, tensor, divisor); }

ulpscope_statistics Measures::statistics_of(const OfOutput& output) const {
  ulpscope_statistics statistics{};
  statistics.size = sizeof statistics;
  statistics.known = output.level;
  const bool counts_roundings = output.cast_to != DType::f32;
  statistics.before_rounding = statistics.rounding_known = counts_roundings;
  for (uint32_t i = 0; i < output.rows.count; ++i) {
    const int64_t* const row = adapter_.row(adapter_.context, output.rows.first + i);
    add_values(row, statistics);
    if (counts_roundings)
      add_roundings(row, edges_.at({output.cast_to, output.scale}), Thresholds(output.cast_to, output.scale), statistics);
  }
  return statistics;
}

void Measures::take_update(ulpscope_op op, uint32_t slot, double learning_rate, const Tensor& before, const Tensor& after,
                           const Tensor* gradient, double factor, const Tensor* update) {
  ulpscope_aten_measure measure{};
  measure.kind = ULPSCOPE_ATEN_COUNTS_OF_UPDATE;
  measure.tensor = &after;
  measure.before = &before;
  measure.gradient = gradient;
  measure.update = update;
  measure.factor = factor;
  OfUpdate taken{op, slot, {}, learning_rate, gradient != nullptr};
  if (ask(measure, taken.rows)) updates_.push_back(taken);
}

ulpscope_update_counts Measures::counts_of(const OfUpdate& update) const {
  ulpscope_update_counts counts{};
  counts.size = sizeof counts;
  counts.learning_rate = update.learning_rate;
  for (uint32_t i = 0; i < update.rows.count; ++i) {
    const int64_t* const row = adapter_.row(adapter_.context, update.rows.first + i);
    counts.nonzero += static_cast<uint64_t>(row[0]);
    counts.lost += static_cast<uint64_t>(row[1]);
    counts.weight_squares += real(row, kSum);
    counts.update_squares += real(row, kSum + 1);
    counts.gradient_dot_update += real(row, kSum + 2);
  }
  if (!update.has_gradient) counts.gradient_dot_update = std::nan("");
  return counts;
}

void Measures::settle(const std::function<void(ulpscope_op, uint32_t, const ulpscope_statistics&)>& fill,
                      const std::function<void(ulpscope_op, uint32_t, const ulpscope_update_counts&)>& fill_update) {
  if (!has_rows_ || is_settled_) return;
  is_settled_ = adapter_.wait(adapter_.context) != 0;
  ++waits_;
  if (!is_settled_) lost_ += outputs_.size();
  if (is_settled_)
    for (const OfOutput& output : outputs_) fill(output.op, output.slot, statistics_of(output));
  if (is_settled_)
    for (const OfUpdate& update : updates_) fill_update(update.op, update.slot, counts_of(update));
  outputs_.clear();
  updates_.clear();
}

double Measures::value_of(const Number& number) const {
  if (number.is_known()) return number.value;
  if (!is_settled_ || number.epoch != epoch_) return std::nan("");
  double sum = 0;
  for (uint32_t i = 0; i < number.rows.count; ++i) sum += real(adapter_.row(adapter_.context, number.rows.first + i), kSum);
  return sum / number.divisor;
}

void Measures::clear() {
  outputs_.clear();
  updates_.clear();
  has_rows_ = is_settled_ = false;
  ++epoch_;
}

}  // namespace ulpscope::aten
