#include "ulpscope/analyzers/totals/what_if.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

constexpr int kBins = ExponentHistogram::kBins;

// 2^e for normal numbers, without a call.
double power_of_two(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

// Of magnitudes.
double next_below(double x) { return x > 0 ? std::bit_cast<double>(std::bit_cast<uint64_t>(x) - 1) : x; }
double next_above(double x) { return x < INFINITY ? std::bit_cast<double>(std::bit_cast<uint64_t>(x) + 1) : x; }

// The magnitudes of a bin: lower <= |x| < upper.
struct BinRange {
  double lower, upper;
};

BinRange range_of_bin(int bin) {
  const double upper = power_of_two(ExponentHistogram::exponent(bin) + 1);
  return {bin == 0 ? 0x1p-149 : upper / 2, upper};
}

bool passes(double magnitude, double threshold, bool strictly) { return strictly ? magnitude < threshold : magnitude <= threshold; }

// Of n elements in [range.lower, range.upper), those up to the threshold.
CountBounds count_in_range(uint64_t n, BinRange range, const TensorStatistics& statistics, double threshold, bool strictly) {
  if (n == 0) return {};
  // The extremes are elements of this bin iff they lie in its range.
  const bool has_smallest = statistics.smallest >= range.lower && statistics.smallest < range.upper;
  const bool has_largest = statistics.largest >= range.lower && statistics.largest < range.upper;
  if (n == 1 && (has_smallest || has_largest)) {
    const uint64_t counted = passes(has_smallest ? statistics.smallest : statistics.largest, threshold, strictly);
    return {counted, counted};
  }
  const double least = has_smallest ? statistics.smallest : range.lower;
  if (!passes(least, threshold, strictly)) return {0, 0};
  // Every element is below range.upper.
  const double last = strictly ? range.upper : next_below(range.upper);
  if (has_largest ? passes(statistics.largest, threshold, strictly) : threshold >= last) return {n, n};
  return {has_smallest ? 1u : 0u, has_largest ? n - 1 : n};
}

CountBounds count_below(const TensorStatistics& statistics, double threshold, bool strictly) {
  const uint64_t all = statistics.finite_nonzero();
  if (all == 0 || !passes(statistics.smallest, threshold, strictly)) return {0, 0};
  if (passes(statistics.largest, threshold, strictly)) return {all, all};
  const ExponentHistogram& histogram = statistics.histogram;
  const auto [first, last] = occupied_bins(statistics);
  CountBounds total = count_in_range(histogram.below_range, {0.0, 0x1p-149}, statistics, threshold, strictly);
  for (int bin = first; bin <= last; ++bin) {
    if (histogram.bins[bin] == 0) continue;
    const BinRange range = range_of_bin(bin);
    if (!passes(range.lower, threshold, strictly)) break;
    total += count_in_range(histogram.bins[bin], range, statistics, threshold, strictly);
  }
  total += count_in_range(histogram.above_range, {0x1p128, INFINITY}, statistics, threshold, strictly);
  return total;
}

}  // namespace

Threshold scaled_threshold(double threshold, double scale) {
  const double product = threshold * scale;
  if (std::isinf(threshold)) return {product, product};
  // The remainder of a product this large is itself exact, so it is 0 iff the product is.
  if (std::isfinite(product) && product > 0x1p-900 && std::fma(threshold, scale, -product) == 0) return {product, product};
  return {next_below(product), next_above(product)};
}

BinSpan occupied_bins(const TensorStatistics& statistics) {
  const auto bin_of = [](double magnitude) {
    if (!(magnitude > 0)) return 0;
    // The exponent field, of which 0, for subnormals, and 2047, for infinity, are beyond all bins too.
    const auto exponent = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
    return std::clamp(exponent + ExponentHistogram::kBias, 0, kBins - 1);
  };
  return {bin_of(statistics.smallest), bin_of(statistics.largest)};
}

CountBounds count_in_bin(const TensorStatistics& statistics, int bin, double threshold) {
  return count_in_range(statistics.histogram.bins[bin], range_of_bin(bin), statistics, threshold, false);
}

CountBounds count_up_to(const TensorStatistics& statistics, Threshold threshold, bool strictly) {
  const CountBounds at_lower = count_below(statistics, threshold.lower, strictly);
  if (threshold.lower == threshold.upper) return at_lower;
  return {at_lower.lower, count_below(statistics, threshold.upper, strictly).upper};
}

RoundingBounds& RoundingBounds::operator+=(const RoundingBounds& other) {
  base += other.base;
  flushed += other.flushed;
  subnormal += other.subnormal;
  overflowed += other.overflowed;
  return *this;
}

uint64_t share_base(const TensorRow& row) {
  const uint64_t stored = row.statistics.finite_nonzero();
  // Statistics taken after a counted rounding miss what it flushed and what it took to Inf.
  if (!row.before_rounding && row.rounding_known) return stored + row.rounding.flushed + row.rounding.infinite();
  return stored;
}

std::optional<RoundingBounds> as_seen(const TensorRow& row) {
  if (!row.rounding_known || row.known == StatisticsLevel::none) return std::nullopt;
  const auto exactly = [](uint64_t count) { return CountBounds{count, count}; };
  return RoundingBounds{share_base(row), exactly(row.rounding.flushed), exactly(row.rounding.subnormal),
                        exactly(row.rounding.overflowed)};
}

namespace {

// Of values recorded as stored in a narrow type, those before that rounding lie up to half an ulp away. A value x <= t - h(t) was
// at most t, and one that was at most t is stored as at most t + h(2 t): x < 2 t, and h grows with x.
Threshold widened(Threshold threshold, const FloatFormat& stored) {
  const auto half_ulp = [&](double magnitude) {
    if (!(magnitude > 0) || !std::isfinite(magnitude)) return 0.0;
    return std::ldexp(1.0, std::max(std::ilogb(magnitude), stored.smallest_normal_exponent()) - stored.fraction_bits - 1);
  };
  return {std::max(0.0, threshold.lower - half_ulp(threshold.lower)), threshold.upper + half_ulp(2 * threshold.upper)};
}

}  // namespace

std::optional<RoundingBounds> what_if(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format,
                                      double loss_scale) {
  return what_if(row, tensor, format, loss_scale, rounding_of(tensor, format));
}

std::optional<RoundingBounds> what_if(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format, double loss_scale,
                                      const Rounding& rounding) {
  const double scale = loss_scale * row.quantization_scale;
  if (row.known != StatisticsLevel::values || !is_float(tensor.dtype) || !(scale > 0) || !std::isfinite(scale)) return std::nullopt;
  uint64_t lost_small = 0, lost_large = 0;
  const bool as_stored = !row.before_rounding && is_narrow(tensor.dtype);
  if (as_stored) {
    if (!row.rounding_known) return std::nullopt;
    lost_small = row.rounding.flushed;
    lost_large = row.rounding.overflowed;
  }
  const TensorStatistics& statistics = row.statistics;
  const uint64_t stored = statistics.finite_nonzero();
  const auto limit = [&](double magnitude) {
    const Threshold threshold = scaled_threshold(magnitude, scale);
    return as_stored ? widened(threshold, *info(tensor.dtype).format) : threshold;
  };
  RoundingBounds bounds;
  bounds.base = stored + lost_small + lost_large;
  const MagnitudeThresholds thresholds = magnitude_thresholds(format, rounding);
  const auto between = [&](double surely, double perhaps, bool strictly) {
    const CountBounds counted = count_up_to(statistics, limit(surely), strictly);
    return surely == perhaps ? counted : CountBounds{counted.lower, count_up_to(statistics, limit(perhaps), strictly).upper};
  };
  bounds.flushed = between(thresholds.flushed.surely_below, thresholds.flushed.perhaps_below, false);
  const CountBounds below_normal = between(thresholds.normal.perhaps_above(), thresholds.normal.surely_above(), true);
  bounds.subnormal.lower = below_normal.lower > bounds.flushed.upper ? below_normal.lower - bounds.flushed.upper : 0;
  bounds.subnormal.upper = below_normal.upper - bounds.flushed.lower;
  const CountBounds in_range = between(thresholds.beyond.perhaps_above(), thresholds.beyond.surely_above(), true);
  bounds.overflowed = {stored - in_range.upper, stored - in_range.lower};
  bounds.flushed.upper += lost_small;
  bounds.subnormal.upper += lost_small;
  bounds.overflowed.upper += lost_large;
  return bounds;
}

double share(uint64_t count, uint64_t base) { return base == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(base); }

Cell share_cell(CountBounds count, uint64_t base) {
  if (base == 0) return NotApplicable{};
  const double whole = static_cast<double>(base);
  return bounded(static_cast<double>(count.lower) / whole, static_cast<double>(count.upper) / whole);
}

}  // namespace ulpscope
