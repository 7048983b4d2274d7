#include "ulpscope/analyzers/totals/range_totals.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

// The row's rounding was into `format` itself, and was counted: then nothing has to be asked of the histogram.
std::optional<RoundingBounds> counted(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format) {
  if (info(tensor.dtype).format != &format || row.quantization_scale != 1.0) return std::nullopt;
  return as_seen(row);
}

std::optional<RoundingBounds> true_what_if(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format) {
  std::optional<RoundingBounds> bounds = what_if(row, tensor, format, row.scale);
  if (!bounds || row.scale < 1 || !counted(row, tensor, format)) return bounds;
  // With S >= 1, x / S rounds to zero where x does, in the rescued elements besides, and under an enormous S in elements that
  // overflowed.
  const uint64_t flushed = row.rounding.flushed + row.rounding.rescued;
  const MagnitudeThresholds thresholds = magnitude_thresholds(format, rounding_of(tensor));
  const bool beyond = row.scale * thresholds.flushed.perhaps_below >= thresholds.beyond.perhaps_above();
  const uint64_t most = flushed + (beyond ? row.rounding.overflowed : 0);
  bounds->flushed = {std::max(flushed, bounds->flushed.lower), std::min(most, bounds->flushed.upper)};
  return bounds;
}

// The histogram of the values divided by `scale`; nothing where that is no power of two.
void merge_histogram(std::unique_ptr<ExponentHistogram>& into, const TensorStatistics& statistics, double scale) {
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5) return;
  const int shift = exponent - 1;
  if (!into) into = std::make_unique<ExponentHistogram>();
  const ExponentHistogram& from = statistics.histogram;
  constexpr int kLast = ExponentHistogram::kBins - 1;
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = first; bin <= last; ++bin) {
    const uint64_t n = from.bins[bin];
    if (n == 0) continue;
    // Bin 0 holds many exponents: shifted down it leaves the range, shifted up it cannot be told apart.
    const int to = bin - shift;
    if (to < 0 || (bin == 0 && shift != 0)) {
      into->below_range += n;
    } else if (to > kLast) {
      into->above_range += n;
    } else {
      into->bins[to] += n;
    }
  }
  into->below_range += from.below_range;
  into->above_range += from.above_range;
}

void merge_histogram(std::unique_ptr<ExponentHistogram>& into, const std::unique_ptr<ExponentHistogram>& from) {
  if (!from) return;
  if (!into) into = std::make_unique<ExponentHistogram>();
  into->merge(*from);
}

}  // namespace

void WhatIfTotals::add(const std::optional<RoundingBounds>& row) {
  if (row) bounds += *row;
  ++(row ? rows : unknown);
}

WhatIfTotals& WhatIfTotals::operator+=(const WhatIfTotals& other) {
  bounds += other.bounds;
  rows += other.rows;
  unknown += other.unknown;
  return *this;
}

void MagnitudeRange::add(double least, double most) {
  if (!(most > 0)) return;
  smallest = largest > 0 ? std::min(smallest, least) : least;
  largest = std::max(largest, most);
}

void RangeTotals::add(const TensorRow& row, const TensorInfo& tensor, std::optional<std::span<const FloatFormat* const>> tabled) {
  if (tabled) what_if.resize(tabled->size());
  ++rows;
  const TensorStatistics& statistics = row.statistics;
  if (row.known == StatisticsLevel::none) return;
  elements += statistics.count;
  nan += statistics.nan;
  infinities += stored_infinities(row, tensor.dtype);
  zeros += statistics.zeros;
  const auto rounding = as_seen(row);
  const bool uncounted = !rounding && is_narrow(tensor.dtype);
  if (rounding) {
    seen += *rounding;
    rescued += row.rounding.rescued;
    saturated += row.rounding.saturated;
    ++rows_seen;
  }
  rows_unseen += uncounted;
  const bool has_scale = row.scale != 1.0;
  scaled = scaled || has_scale;
  quantized = quantized || is_quantized(tensor.dtype);
  if (row.known == StatisticsLevel::values) {
    ++rows_with_values;
    as_stored += !row.before_rounding && is_narrow(tensor.dtype);
    const double quantization = row.quantization_scale, both = quantization * row.scale;
    recorded.add(statistics.smallest / quantization, statistics.largest / quantization);
    unscaled.add(statistics.smallest / both, statistics.largest / both);
    if (is_float(tensor.dtype) && (statistics.largest > largest_since_ || tensor.dtype != of_dtype_)) {
      largest_since_ = statistics.largest;
      of_dtype_ = tensor.dtype;
      least_headroom = std::fmin(least_headroom, headroom(*info(tensor.dtype).format, statistics.largest));
    }
    // Until a row contains a loss scale, the true histogram is the recorded one.
    if (tabled && has_scale && !true_histogram) {
      true_histogram = histogram ? std::make_unique<ExponentHistogram>(*histogram) : std::make_unique<ExponentHistogram>();
    }
    if (tabled || uncounted) merge_histogram(histogram, statistics, quantization);
    if (is_quantized(tensor.dtype)) {
      if (tabled) merge_histogram(quantized_histograms[fp8_place(tensor.dtype)], statistics, 1.0);
      quantization_scales.add(quantization, quantization);
      amax.add(statistics.largest / quantization, statistics.largest / quantization);
    }
    if (true_histogram) merge_histogram(true_histogram, statistics, both);
  }
  if (!tabled || !is_float(tensor.dtype)) return;
  for (size_t i = 0; i < tabled->size(); ++i) {
    const FloatFormat& format = *(*tabled)[i];
    const auto exact = counted(row, tensor, format);
    const auto bounds = exact ? exact : ulpscope::what_if(row, tensor, format, 1.0);
    what_if[i].as_scaled.add(bounds);
    what_if[i].as_true.add(has_scale ? true_what_if(row, tensor, format) : bounds);
  }
}

void RangeTotals::add(const RangeTotals& other) {
  rows += other.rows;
  elements += other.elements;
  nan += other.nan;
  infinities += other.infinities;
  zeros += other.zeros;
  rows_with_values += other.rows_with_values;
  seen += other.seen;
  rescued += other.rescued;
  saturated += other.saturated;
  rows_seen += other.rows_seen;
  rows_unseen += other.rows_unseen;
  as_stored += other.as_stored;
  recorded.add(other.recorded.smallest, other.recorded.largest);
  unscaled.add(other.unscaled.smallest, other.unscaled.largest);
  least_headroom = std::fmin(least_headroom, other.least_headroom);
  scaled = scaled || other.scaled;
  quantized = quantized || other.quantized;
  what_if.resize(std::max(what_if.size(), other.what_if.size()));
  for (size_t i = 0; i < other.what_if.size(); ++i) {
    what_if[i].as_scaled += other.what_if[i].as_scaled;
    what_if[i].as_true += other.what_if[i].as_true;
  }
  if (other.true_histogram && !true_histogram && histogram) true_histogram = std::make_unique<ExponentHistogram>(*histogram);
  if (other.true_histogram || true_histogram) {
    merge_histogram(true_histogram, other.true_histogram ? other.true_histogram : other.histogram);
  }
  merge_histogram(histogram, other.histogram);
  for (size_t i = 0; i < quantized_histograms.size(); ++i) merge_histogram(quantized_histograms[i], other.quantized_histograms[i]);
  quantization_scales.add(other.quantization_scales.smallest, other.quantization_scales.largest);
  amax.add(other.amax.smallest, other.amax.largest);
}

Cell seen_cell(const RangeTotals& totals, CountBounds RoundingBounds::*what) {
  if (totals.rows_seen == 0) return totals.rows_unseen > 0 ? Cell(Unknown{}) : Cell(NotApplicable{});
  return share_cell(totals.seen.*what, totals.seen.base);
}

}  // namespace ulpscope
