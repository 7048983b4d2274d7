#include "ulpscope/analyzers/totals/fitting_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/flush_loss.h"

namespace ulpscope {

namespace {

constexpr int kNoLower = ExponentBounds::kNoLower;
constexpr int kNoUpper = ExponentBounds::kNoUpper;

// The largest k with magnitude * 2^k < threshold: with m 2^a and n 2^b, 1 <= m, n < 2, that is b - a if m < n, else b - a - 1.
int largest_shift_below(double magnitude, double threshold) {
  const int shift = std::ilogb(threshold) - std::ilogb(magnitude);
  return std::ldexp(magnitude, shift) < threshold ? shift : shift - 1;
}

bool is_power_of_two(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5;
}

// 2^e, e being the exponent of a bin: a normal number, made without a call.
double lower_edge(int bin) { return std::bit_cast<double>(static_cast<uint64_t>(ExponentHistogram::exponent(bin) + 1023) << 52); }

double significand(double magnitude) { return std::ldexp(magnitude, -std::ilogb(magnitude)); }

// Half an ulp at values of that exponent, stored in the format.
double half_ulp(const FloatFormat& stored, int exponent) {
  return std::ldexp(1.0, std::max(exponent, stored.smallest_normal_exponent()) - stored.fraction_bits - 1);
}

// Beyond these scales, products with thresholds would leave the range of FP64.
bool usable(const TensorRow& row) { return row.known == StatisticsLevel::values && row.scale >= 0x1p-700 && row.scale <= 0x1p700; }

}  // namespace

void raise(std::optional<ExponentBounds>& into, const ExponentBounds& other) {
  if (!into) {
    into = other;
    return;
  }
  into->lower = std::max(into->lower, other.lower);
  into->upper = std::max(into->upper, other.upper);
}

void narrow_from_above(std::optional<ExponentBounds>& into, const ExponentBounds& other) {
  if (!into) {
    into = other;
    return;
  }
  into->lower = std::min(into->lower, other.lower);
  into->upper = std::min(into->upper, other.upper);
}

Cell scale_cell(const std::optional<ExponentBounds>& bounds) {
  if (!bounds || (bounds->lower == kNoLower && bounds->upper == kNoUpper)) return Unknown{};
  return bounded(bounds->lower == kNoLower ? 0.0 : std::ldexp(1.0, bounds->lower),
                 bounds->upper == kNoUpper ? INFINITY : std::ldexp(1.0, bounds->upper));
}

std::optional<ExponentBounds> largest_fitting(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format) {
  if (!usable(row)) return std::nullopt;
  ExponentBounds bounds;
  const double largest = row.statistics.largest;
  const MagnitudeThreshold beyond = magnitude_thresholds(format, rounding_of(tensor, format)).beyond;
  const Threshold overflow{scaled_threshold(beyond.perhaps_above(), row.scale).lower,
                           scaled_threshold(beyond.surely_above(), row.scale).upper};
  if (largest > 0 && std::isfinite(overflow.upper) && overflow.lower > 0) {
    double least = largest, most = largest;
    const FloatFormat& stored = *info(tensor.dtype).format;
    if (is_stored(row, tensor) && (&stored != &format || largest < stored.smallest_normal() || !is_power_of_two(row.scale))) {
      // Half an ulp each way. In the stored format itself a power of two moves a normal rounded value as it moves the one before.
      const double half = half_ulp(stored, std::ilogb(largest));
      least = std::max(least - half, least / 2);
      most += half;
    }
    bounds = {largest_shift_below(most, overflow.lower), largest_shift_below(least, overflow.upper)};
  } else if (row.statistics.nonfinite() == 0) {
    return std::nullopt;
  }
  if (row.statistics.nonfinite() > 0) {
    const int exponent = std::ilogb(row.scale);
    bounds.lower = kNoLower;
    bounds.upper = std::min(bounds.upper, is_power_of_two(row.scale) ? exponent - 1 : exponent);  // the largest below S
  }
  return bounds;
}

Flushing flushing_of(const FloatFormat& format, const Rounding& rounding) {
  return {magnitude_thresholds(format, rounding).flushed, felt_part(format)};
}

void ExponentCounts::add(const ExponentCounts& other) {
  if (other.gains_.empty()) return;
  gains_.resize(kLast - kFirst + 1);
  for (int used = other.first_used_; used <= other.last_used_; ++used) gains_[used - kFirst] += other.gains_[used - kFirst];
  first_used_ = std::min(first_used_, other.first_used_);
  last_used_ = std::max(last_used_, other.last_used_);
}

void ExponentCounts::clear() {
  for (int used = first_used_; used <= last_used_; ++used) gains_[used - kFirst] = 0;
  first_used_ = kLast;
  last_used_ = kFirst;
}

void FlushCounts::restart(const Flushing& flushing) {
  flushing_ = flushing;
  for (ExponentCounts* counts : {&sure_, &maybe_, &felt_surely_, &felt_maybe_}) counts->clear();
  base_ = rows_ = lost_ = 0;
  uncounted_ = false;
}

// What a row's values were before they were rounded, of which its statistics may be of what was stored.
struct FlushCounts::Lost {
  bool stored;
  const FloatFormat* format;  // of what was stored
  double at_most = 0;         // squares of what was flushed before
  // The sum of squares: a sum of n squares of doubles, which errs by less than 2^-40 of itself, and so do the sums compared with
  // it.
  double least_squares = 0, most_squares = INFINITY;

  Lost(const TensorRow& row, const TensorInfo& tensor) : stored(is_stored(row, tensor)), format(info(tensor.dtype).format) {
    const double squares = row.statistics.sum_of_squares;
    if (!std::isfinite(squares)) return;
    least_squares = squares * (1 - 0x1p-40);
    most_squares = squares * (1 + 0x1p-40);
    if (!stored) return;
    const uint64_t flushed = row.rounding_known ? row.rounding.flushed : row.statistics.zeros;
    at_most = static_cast<double>(flushed) * square(magnitude_thresholds(*format, rounding_of(tensor)).flushed.perhaps_below);
    const double part = row.statistics.smallest > 0 ? moved(std::ilogb(row.statistics.smallest)) : 0;
    least_squares *= square(1 - part);
    most_squares = most_squares * square(1 + part) + at_most;
  }
  // How far at most a stored value of that exponent is from the one before, over 2^exponent: never more than values of smaller
  // ones.
  double moved(int exponent) const { return stored ? std::ldexp(half_ulp(*format, exponent), -exponent) : 0; }
};

bool FlushCounts::add(const TensorRow& row, const TensorInfo& tensor) {
  const TensorStatistics& statistics = row.statistics;
  if (!usable(row) || statistics.nonfinite() > 0) return false;
  const uint64_t base = share_base(row);
  base_ += base;
  const Lost lost(row, tensor);
  const bool uncounted = lost.stored && !row.rounding_known;
  if (lost.stored && row.rounding_known) lost_ += row.rounding.flushed;
  uncounted_ = uncounted_ || uncounted;
  if (base == 0 && !uncounted) return true;
  ++rows_;
  // p of each threshold, which are the same in most modes and at most scales.
  const auto& [surely_below, perhaps_below] = flushing_.flushed;
  const double sure = surely_below > 0 ? scaled_threshold(significand(surely_below), row.scale).lower : 0;
  const double maybe = perhaps_below > 0 ? scaled_threshold(significand(perhaps_below), row.scale).upper : 0;
  if (sure == maybe) {
    if (sure > 0) add_up_to(sure, row, lost, true, true);
    return true;
  }
  if (sure > 0) add_up_to(sure, row, lost, true, false);
  add_up_to(maybe, row, lost, false, true);
  return true;
}

void FlushCounts::add(const FlushCounts& other) {
  sure_.add(other.sure_);
  maybe_.add(other.maybe_);
  felt_surely_.add(other.felt_surely_);
  felt_maybe_.add(other.felt_maybe_);
  base_ += other.base_;
  rows_ += other.rows_;
  lost_ += other.lost_;
  uncounted_ = uncounted_ || other.uncounted_;
}

// |x| / S <= m 2^j is |x| <= p 2^j with p = m S = f 2^s, 1 <= f < 2. Of the bin [2^e, 2^(e + 1)) that holds for no element where
// j < e - s, for all where j > e - s, and for j = e - s the extremes decide. A value before its rounding may have been half an ulp
// above the threshold that it stands on now. It has not crossed a power of two, but any other threshold. The loss of those up to
// the threshold is felt where their squares add up to more than the part of the sum of all squares; a square of the bin is at least
// 4^e, and at most 4^(e + 1) or that of the threshold.
class FlushCounts::Sweep {
 public:
  // `counts`, `felt`: to add to; `budget`: the squares whose loss is not felt yet.
  Sweep(ExponentCounts& counts, ExponentCounts& felt, double squares, double budget)
      : counts_(counts), felt_(felt), squares_(squares), budget_(budget) {}
  void count(int j, uint64_t n) { counts_.add(j, n); }
  // At j, squares more than those of whole bins so far.
  void see(int j, double more) {
    if (is_felt_ || !(squares_ + more > budget_)) return;
    is_felt_ = true;
    felt_.add(j, 1);
  }
  // Of a bin, n elements of these squares, of which some lie up to the threshold at j, the others up to the next.
  void bin(int j, uint64_t n, double square, uint64_t at_threshold, double square_at_threshold) {
    counts_.add(j, at_threshold);
    counts_.add(j + 1, n - at_threshold);
    see(j, static_cast<double>(at_threshold) * square_at_threshold);
    squares_ += static_cast<double>(n) * square;
  }

 private:
  ExponentCounts &counts_, &felt_;
  double squares_;
  const double budget_;
  bool is_felt_ = false;
};

void FlushCounts::add_up_to(double p, const TensorRow& row, const Lost& lost, bool surely, bool maybe) {
  const int s = std::ilogb(p);
  const double f = std::ldexp(p, -s), part = square(flushing_.felt);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  Sweep sure(sure_, felt_surely_, 0, part * lost.most_squares);
  Sweep possible(maybe_, felt_maybe_, lost.at_most + static_cast<double>(histogram.below_range) * 0x1p-298,
                 part * lost.least_squares);
  if (surely) {
    sure.count(-149 - s, histogram.below_range);
    // Bin 0 holds every exponent from -149 to -127.
    sure.count(-126 - s, histogram.bins[0]);
    sure.count(ExponentCounts::kLast, histogram.above_range);
  }
  if (maybe) {
    possible.count(ExponentCounts::kFirst, histogram.below_range);
    possible.see(ExponentCounts::kFirst, 0);
    const double smallest = statistics.smallest;
    const int subnormal = (smallest >= 0x1p-149 && smallest < 0x1p-126 ? std::ilogb(smallest) : -149) - s;
    possible.bin(subnormal, histogram.bins[0], 0x1p-252, histogram.bins[0], 0x1p-252);
    possible.count(128 - s, histogram.above_range);
  }
  const auto [first, last] = occupied_bins(statistics);
  // In a bin between those of the extremes, n elements lie anywhere.
  const bool fills_bin = f >= std::nextafter(2.0, 0.0);
  const auto up_to = [&](int bin, uint64_t n, double edge) {
    if (n == 0) return CountBounds{};
    return bin == first || bin == last ? count_in_bin(statistics, bin, f * edge) : CountBounds{fills_bin ? n : 0, n};
  };
  int j = ExponentHistogram::exponent(std::max(1, first)) - s;
  for (int bin = std::max(1, first); bin <= last; ++bin, ++j) {
    const uint64_t n = histogram.bins[bin];
    const double edge = lower_edge(bin);
    const CountBounds at_threshold = up_to(bin, n, edge);
    if (surely) {
      const double least = square(edge * (1 - lost.moved(ExponentHistogram::exponent(bin))));
      sure.bin(j, n, least, lost.stored ? 0 : at_threshold.lower, least);
    }
    if (!maybe) continue;
    const double most = square(2 * edge);
    if (lost.stored && f != 1) {
      possible.bin(j - 1, n, most, n, most);
    } else {
      possible.bin(j, n, most, at_threshold.upper, square(f * edge));
    }
  }
  if (surely) sure.see(j, 0);
  if (maybe) possible.see(j, histogram.above_range > 0 ? INFINITY : 0);
}

std::optional<ExponentBounds> FlushCounts::smallest_fitting(double limit) const {
  const auto& [surely_below, perhaps_below] = flushing_.flushed;
  if (base_ == 0 || perhaps_below == 0) return std::nullopt;
  const auto too_many = [&](uint64_t flushed) { return static_cast<double>(flushed) > limit * static_cast<double>(base_); };
  const auto matters = [&](uint64_t felt) { return FlushLoss::matters(felt, rows_); };
  // Elements with |x| / S <= m 2^j are flushed at the scale 2^k with j = exponent of the threshold - k. Either is enough to fit.
  ExponentBounds bounds;
  const std::optional<int> most = std::max(sure_.highest(0, too_many), felt_surely_.highest(0, matters));
  if (surely_below > 0 && most && *most < ExponentCounts::kLast) bounds.lower = std::ilogb(surely_below) - *most;
  const std::optional<int> least =
      std::max(uncounted_ ? std::nullopt : maybe_.highest(lost_, too_many), felt_maybe_.highest(0, matters));
  if (least && *least >= ExponentCounts::kFirst) bounds.upper = std::ilogb(perhaps_below) - *least;
  return bounds;
}

}  // namespace ulpscope
