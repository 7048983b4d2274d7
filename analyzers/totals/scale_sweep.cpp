#include "ulpscope/analyzers/totals/scale_sweep.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/fitting_bounds.h"

namespace ulpscope {

namespace {

constexpr double kSumError = 0x1p-40;  // of sums of squares, far more than they err by
constexpr int kMostShift = 64;

// log2 of a power of two; nullopt of anything else, and of what is too far from 1 to be shifted by.
std::optional<int> shift_of(double scale) {
  int exponent = 0;
  if (!(scale > 0) || std::frexp(scale, &exponent) != 0.5 || std::abs(exponent - 1) > kMostShift) return std::nullopt;
  return exponent - 1;
}

// The row's rounding was into the format itself, and was counted.
bool is_counted(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format) {
  return info(tensor.dtype).format == &format && row.quantization_scale == 1.0 && row.rounding_known;
}

// Squares of what rounding x / `divisor` flushes, or what overflows, and of all, bin by bin, divided by `unit` squared. A stored
// value was up to half an ulp away before it was stored; what was flushed or overflowed then is known by its number alone.
void add_squares(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format, double divisor, double unit,
                 SweepAnswer& answer) {
  const MagnitudeThresholds thresholds = magnitude_thresholds(format, rounding_of(tensor, format));
  const double flushed_sure = scaled_threshold(thresholds.flushed.surely_below, divisor).lower;
  const double flushed_maybe = scaled_threshold(thresholds.flushed.perhaps_below, divisor).upper;
  const double kept_sure = scaled_threshold(thresholds.beyond.surely_below, divisor).lower;
  const double kept_maybe = scaled_threshold(thresholds.beyond.perhaps_below, divisor).upper;
  const bool stored = is_stored(row, tensor);
  SquareBounds lost, all;
  const auto take = [&](uint64_t count, double least, double most, double moved) {
    if (count == 0) return;
    least *= 1 - moved;
    most *= 1 + moved;
    const auto n = static_cast<double>(count);
    const SquareBounds squares{n * square(least / unit), n * square(most / unit)};
    all += squares;
    if (most <= flushed_sure || least > kept_maybe) {
      lost += squares;
    } else if (least <= flushed_maybe || most > kept_sure) {
      lost.upper += most > kept_sure ? squares.upper : n * square(std::min(most, flushed_maybe) / unit);
    }
  };
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  take(histogram.below_range, 0, 0x1p-149, 0);
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = first; bin <= last; ++bin) {
    const int exponent = ExponentHistogram::exponent(bin);
    const double edge = std::ldexp(1.0, exponent);
    double moved = 0;
    if (stored) {
      const FloatFormat& of_store = *info(tensor.dtype).format;
      moved = std::ldexp(0.5, std::max(0, of_store.smallest_normal_exponent() - exponent) - of_store.fraction_bits);
    }
    take(histogram.bins[bin], std::max(bin == 0 ? 0x1p-149 : edge, bin == first ? statistics.smallest : 0.0),
         std::min(2 * edge, bin == last ? statistics.largest : INFINITY), std::min(moved, 1.0));
  }
  take(histogram.above_range, 0x1p128, statistics.largest, 0);
  if (stored) {
    const auto n = static_cast<double>(row.rounding.flushed);
    const double before =
        n * square(magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed.perhaps_below / unit);
    lost.upper += before;
    all.upper += before;
    if (row.rounding.overflowed > 0) lost.upper = all.upper = INFINITY;
  } else if (std::isfinite(statistics.sum_of_squares)) {
    all = {statistics.sum_of_squares / square(unit), statistics.sum_of_squares / square(unit)};
    lost.upper = std::min(lost.upper, all.upper);
  }
  answer.lost += lost;
  answer.all += all;
}

}  // namespace

void LongSum::add(double value) {
  const double sum = high_ + value, of_value = sum - high_;
  low_ += (high_ - (sum - of_value)) + (value - of_value);
  high_ = sum;
}

SweepAnswer& SweepAnswer::operator+=(const SweepAnswer& other) {
  bounds += other.bounds;
  lost += other.lost;
  all += other.all;
  return *this;
}

CountBounds SweepAnswer::lost_elements() const {
  CountBounds elements = bounds.flushed;
  elements += bounds.overflowed;
  return {std::min(elements.lower, bounds.base), std::min(elements.upper, bounds.base)};
}

Cell SweepAnswer::lost_norm() const {
  if (bounds.base == 0) return NotApplicable{};
  const CountBounds elements = lost_elements();
  if (elements.upper == 0) return 0.0;
  if (elements.lower == bounds.base) return 1.0;
  const auto part = [](double squares, double of) { return of > 0 && squares < of ? std::sqrt(squares / of) : 1.0; };
  // In FP32, outwards, so that the order of sums does not show.
  const auto toward = [](double value, float end) { return static_cast<double>(std::nextafter(static_cast<float>(value), end)); };
  double lower = 0;
  if (std::isfinite(all.upper) && lost.lower > 0) lower = part(lost.lower * (1 - kSumError), all.upper * (1 + kSumError));
  const double upper = part(lost.upper * (1 + kSumError), all.lower * (1 - kSumError));
  return bounded(std::max(0.0, toward(lower, 0.0F)), std::min(1.0, toward(upper, 1.0F)));
}

SweptRows::Place SweptRows::place_of(double threshold) {
  if (!(threshold > 0)) return {1, kFirst - 4 * kMostShift, true};  // under it lies nothing
  if (std::isinf(threshold)) return {1, kLast + 4 * kMostShift, true};
  const int exponent = std::ilogb(threshold);
  if (std::nextafter(threshold, INFINITY) == std::ldexp(1.0, exponent + 1)) return {1, exponent + 1, true};
  return {std::ldexp(threshold, -exponent), exponent, false};
}

void SweptRows::begin(const TensorInfo& tensor) {
  for (const FloatFormat* format : question_->formats) {
    const MagnitudeThresholds thresholds = magnitude_thresholds(*format, rounding_of(tensor, *format));
    // What lies under the threshold of overflow is in range.
    const auto places = [](const MagnitudeThreshold& t) { return Places{place_of(t.surely_below), place_of(t.perhaps_below)}; };
    places_.push_back({places(thresholds.flushed), places(thresholds.normal), places(thresholds.beyond)});
  }
  bins_.resize(kLast - kFirst + 1);
  in_bins_.resize(question_->formats.size() * kSides * question_->exponents.size());
}

int SweptRows::index_of(int exponent) const {
  const std::vector<int>& exponents = question_->exponents;
  const int offset = exponent - exponents.front();
  // Nearly always all from the first to the last.
  if (offset < 0 || exponent > exponents.back()) return -1;
  if (exponents.back() - exponents.front() + 1 == static_cast<int>(exponents.size())) return offset;
  const auto found = std::lower_bound(exponents.begin(), exponents.end(), exponent);
  return *found == exponent ? static_cast<int>(found - exponents.begin()) : -1;
}

SweptRows::InBin& SweptRows::in_bin(size_t format, size_t side, size_t exponent) {
  return in_bins_[(format * kSides + side) * question_->exponents.size() + exponent];
}
const SweptRows::InBin& SweptRows::in_bin(size_t format, size_t side, size_t exponent) const {
  return in_bins_[(format * kSides + side) * question_->exponents.size() + exponent];
}

void SweptRows::add(const TensorRow& row, const TensorInfo& tensor, const std::shared_ptr<const SweepQuestion>& question) {
  if (!question_) {
    question_ = question;
    begin(tensor);
  }
  (add_aligned(row, tensor) || add_alone(row, tensor) ? rows_ : unknown_) += 1;
}

bool SweptRows::add_aligned(const TensorRow& row, const TensorInfo& tensor) {
  const double loss_scale = question_->scaled ? row.scale : 1.0;
  const std::optional<int> of_loss = shift_of(loss_scale), of_both = shift_of(loss_scale * row.quantization_scale);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  if (row.known != StatisticsLevel::values || !is_float(tensor.dtype) || is_stored(row, tensor) || !of_loss || !of_both ||
      histogram.bins[0] > 0 || histogram.below_range > 0 || histogram.above_range > 0 || !std::isfinite(statistics.sum_of_squares))
    return false;
  if (statistics.finite_nonzero() == 0) return true;
  const int shift = *of_both;
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = first; bin <= last; ++bin) bins_[ExponentHistogram::exponent(bin) - shift - kFirst] += histogram.bins[bin];
  squares_.add(std::ldexp(statistics.sum_of_squares, -2 * shift));
  for (size_t format = 0; format < places_.size(); ++format) {
    int seen = -1;
    if (is_counted(row, tensor, *question_->formats[format])) {
      seen = index_of(*of_loss);
      if (seen >= 0) see_counts(row, format, shift, seen);
    }
    see_extremes(row, format, shift, seen);
  }
  return true;
}

// At 2^k, a bin whose exponent divided by the scale is j holds the threshold significand * 2^b iff j = b - k.
void SweptRows::see_extremes(const TensorRow& row, size_t format, int shift, int skipped) {
  const TensorStatistics& statistics = row.statistics;
  const auto [first, last] = occupied_bins(statistics);
  for (const int bin : {first, last}) {
    const int exponent = ExponentHistogram::exponent(bin);
    const double edge = std::ldexp(1.0, exponent);
    for (size_t side = 0; side < kSides; ++side) {
      const auto& [sure, maybe] = places_[format][side];
      const auto look = [&](const Place& place, bool under, bool above) {
        const int index = place.is_edge ? -1 : index_of(place.exponent - (exponent - shift));
        if (index < 0 || index == skipped) return;
        const CountBounds counted = count_in_bin(statistics, bin, place.significand * edge);
        InBin& into = in_bin(format, side, static_cast<size_t>(index));
        if (under) into.under += static_cast<int64_t>(counted.lower);
        if (above) into.above += static_cast<int64_t>(statistics.histogram.bins[bin] - counted.upper);
      };
      if (sure == maybe) {
        look(sure, true, true);
      } else {
        look(sure, true, false);
        look(maybe, false, true);
      }
    }
    if (first == last) break;
  }
}

void SweptRows::see_counts(const TensorRow& row, size_t format, int shift, int index) {
  const auto as_seen_there = *as_seen(row);
  const uint64_t flushed_count = as_seen_there.flushed.lower;
  const std::array<uint64_t, kSides> counts{flushed_count, flushed_count + as_seen_there.subnormal.lower,
                                            as_seen_there.base - as_seen_there.overflowed.lower};
  const auto [first, last] = occupied_bins(row.statistics);
  const int k = question_->exponents[static_cast<size_t>(index)];
  // The elements in bins whose exponent, divided by the scale, is less than j.
  const auto before = [&](int j) {
    int64_t count = 0;
    for (int bin = first; bin <= last && ExponentHistogram::exponent(bin) - shift < j; ++bin)
      count += static_cast<int64_t>(row.statistics.histogram.bins[bin]);
    return count;
  };
  for (size_t side = 0; side < kSides; ++side) {
    const auto& [sure, maybe] = places_[format][side];
    const auto count = static_cast<int64_t>(counts[side]);
    InBin& into = in_bin(format, side, static_cast<size_t>(index));
    into.under += count - before(sure.exponent - k);
    into.above += before(maybe.exponent - k + (maybe.is_edge ? 0 : 1)) - count;
  }
}

bool SweptRows::add_alone(const TensorRow& row, const TensorInfo& tensor) {
  const double loss_scale = question_->scaled ? row.scale : 1.0;
  const std::vector<int>& exponents = question_->exponents;
  if (!what_if(row, tensor, *question_->formats.front(), loss_scale)) return false;
  if (alone_.empty()) alone_.resize(places_.size() * exponents.size());
  for (size_t format = 0; format < places_.size(); ++format) {
    const FloatFormat& asked = *question_->formats[format];
    for (size_t i = 0; i < exponents.size(); ++i) {
      const double divisor = std::ldexp(loss_scale, -exponents[i]);
      SweepAnswer& answer = alone_[format * exponents.size() + i];
      const bool counted = divisor == 1 && is_counted(row, tensor, asked);
      const auto bounds = counted ? as_seen(row) : what_if(row, tensor, asked, divisor);
      if (bounds) answer.bounds += *bounds;
      add_squares(row, tensor, asked, divisor * row.quantization_scale, loss_scale * row.quantization_scale, answer);
    }
  }
  return true;
}

void SweptRows::add(const SweptRows& other) {
  if (other.is_empty()) return;
  if (is_empty()) {
    *this = other;
    return;
  }
  rows_ += other.rows_;
  unknown_ += other.unknown_;
  squares_.add(other.squares_);
  for (size_t i = 0; i < bins_.size(); ++i) bins_[i] += other.bins_[i];
  for (size_t i = 0; i < in_bins_.size(); ++i) {
    in_bins_[i].under += other.in_bins_[i].under;
    in_bins_[i].above += other.in_bins_[i].above;
  }
  if (other.alone_.empty()) return;
  alone_.resize(other.alone_.size());
  for (size_t i = 0; i < alone_.size(); ++i) alone_[i] += other.alone_[i];
}

void SweptRows::clear() {
  rows_ = unknown_ = 0;
  squares_ = {};
  std::fill(bins_.begin(), bins_.end(), 0);
  std::fill(in_bins_.begin(), in_bins_.end(), InBin{});
  alone_.clear();
}

std::vector<SweepAnswer> SweptRows::answers() const {
  if (is_empty()) return {};
  const size_t span = bins_.size(), exponents = question_->exponents.size();
  // Of the bins before each, and of those from it on.
  std::vector<uint64_t> count(span + 1);
  std::vector<double> below(span + 1), from(span + 1);  // sums of n 4^j
  const auto lower_square = [](int j) { return std::ldexp(1.0, 2 * j); };
  for (size_t i = 0; i < span; ++i) {
    count[i + 1] = count[i] + bins_[i];
    below[i + 1] = below[i] + static_cast<double>(bins_[i]) * lower_square(static_cast<int>(i) + kFirst);
  }
  for (size_t i = span; i > 0; --i)
    from[i - 1] = from[i] + static_cast<double>(bins_[i - 1]) * lower_square(static_cast<int>(i) - 1 + kFirst);
  const auto at = [&](int j) { return static_cast<size_t>(std::clamp(j, kFirst, kLast + 1) - kFirst); };
  const uint64_t all = count[span];
  const double all_squares = squares_.value();
  const auto clamped = [&](uint64_t elements, int64_t more) {
    return static_cast<uint64_t>(std::clamp<int64_t>(static_cast<int64_t>(elements) + more, 0, static_cast<int64_t>(all)));
  };
  std::vector<SweepAnswer> answers = alone_;
  answers.resize(places_.size() * exponents);
  for (size_t format = 0; format < places_.size(); ++format) {
    for (size_t i = 0; i < exponents; ++i) {
      const int k = question_->exponents[i];
      const auto under = [&](Side side) {
        const auto& [sure, maybe] = places_[format][side];
        const InBin& in = in_bin(format, side, i);
        const uint64_t lower = clamped(count[at(sure.exponent - k)], in.under);
        return CountBounds{lower, std::max(lower, clamped(count[at(maybe.exponent - k + (maybe.is_edge ? 0 : 1))], -in.above))};
      };
      const CountBounds small = under(flushed), not_normal = under(below_normal), kept = under(in_range);
      SweepAnswer answer;
      answer.bounds = {all,
                       small,
                       {not_normal.lower > small.upper ? not_normal.lower - small.upper : 0,
                        not_normal.upper > small.lower ? not_normal.upper - small.lower : 0},
                       {all - kept.upper, all - kept.lower}};
      // Squares: of whole bins, and of those elements of the bin of a threshold that lie on one side of it.
      const auto& [flush_sure, flush_maybe] = places_[format][flushed];
      const auto& [keep_sure, keep_maybe] = places_[format][in_range];
      const auto beyond = [](uint64_t part, uint64_t whole) { return part > whole ? static_cast<double>(part - whole) : 0.0; };
      const int fs = flush_sure.exponent - k, fm = flush_maybe.exponent - k, ks = keep_sure.exponent - k,
                km = keep_maybe.exponent - k;
      SquareBounds& squares = answer.lost;
      squares.lower = below[at(fs)] + beyond(small.lower, count[at(fs)]) * lower_square(fs);
      squares.upper = 4 * below[at(fm)] + beyond(small.upper, count[at(fm)]) * square(flush_maybe.significand) * lower_square(fm);
      const int after = km + (keep_maybe.is_edge ? 0 : 1);
      squares.lower +=
          from[at(after)] + beyond(all - kept.upper, all - count[at(after)]) * square(keep_maybe.significand) * lower_square(km);
      const int next = ks + (keep_sure.is_edge ? 0 : 1);
      squares.upper += 4 * from[at(next)] + beyond(all - kept.lower, all - count[at(next)]) * 4 * lower_square(ks);
      // What is kept bounds them from the other side.
      const int from_kept = fm + (flush_maybe.is_edge ? 0 : 1);
      const double least_kept = from_kept < ks ? below[at(ks)] - below[at(from_kept)] : 0;
      const double most_kept = fs < after ? 4 * (below[at(after)] - below[at(fs)]) : 0;
      const double error = kSumError * all_squares;
      squares.upper = std::min(squares.upper, all_squares - least_kept + error);
      squares.lower = std::min(std::max(squares.lower, all_squares - most_kept - error), squares.upper);
      answer.all = {all_squares, all_squares};
      answers[format * exponents + i] += answer;
    }
  }
  return answers;
}

}  // namespace ulpscope
