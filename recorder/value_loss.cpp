#include "ulpscope/recorder/value_loss.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/recorder/running_sum.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

constexpr uint64_t kFirstSteps = 8, kEvery = 16;
constexpr int64_t kMostMeasured = 1024;
constexpr int64_t kMostFeatures = 32, kMostSamples = 32, kLeastSamples = 8;
// So many elements of a cast are read at first, to see whether they are whole numbers.
constexpr int64_t kFirstRead = 8;

// The index of the i-th of `count` elements that are spread over so many.
int64_t spaced(int64_t i, int64_t count, int64_t size) {
  return count == 1 ? 0 : (size - 1) / (count - 1) * i + (size - 1) % (count - 1) * i / (count - 1);
}

// FP64, in which they are read, has no others.
constexpr double kLargestWhole = 0x1p53;
bool is_whole(double value) { return !std::isfinite(value) || (value == std::trunc(value) && std::abs(value) <= kLargestWhole); }

double share(int64_t part, int64_t of) { return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0; }

// The significand's bits, with the one that is not stored.
int digits_of(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return 63;
    case DType::i32:
      return 31;
    case DType::u8:
    case DType::boolean:
      return 8;
    default:
      return info(dtype).format->fraction_bits + 1;
  }
}

// The place of the i-th of `count` elements of which one half is at each end.
int64_t at_either_end(int64_t i, int64_t count, int64_t size) {
  const int64_t first = size == count ? count : count / 2;
  return i < first ? i : size - count + i;
}

// Counts whole numbers that rounding changed, and those that it made equal.
class WholeNumbers {
 public:
  void add(double value, double rounded) {
    if (!std::isfinite(value)) return;
    ++count_;
    changed_ += rounded != value;
    numbers_.emplace(value, rounded);
  }
  void append_to(std::vector<ValueMeasure>& measured) const {
    int64_t merged = 0, changed = 0;
    for (auto next = numbers_.begin(); next != numbers_.end(); ++next) {
      changed += next->first != next->second;
      if (next != numbers_.begin()) merged += next->second == std::prev(next)->second;
    }
    // A mask of 0 and -1e9 has one number that is another one then, and loses nothing.
    if (merged == 0 && changed < kFewest) return;
    measured.push_back({kWholeNumbersRounded, share(changed_, count_)});
    measured.push_back({kNeighboursMerged, share(merged, static_cast<int64_t>(numbers_.size()) - 1)});
  }

 private:
  static constexpr int64_t kFewest = 8;

  int64_t count_ = 0, changed_ = 0;
  std::map<double, double> numbers_;  // each once, with what it is then
};

void measure_whole_numbers(const TensorView& from, const TensorView& to, std::vector<ValueMeasure>& measured) {
  const int64_t size = from.size(), first = std::min(size, kFirstRead);
  for (int64_t i = 0; i < first; ++i)
    if (!is_whole(read_element(from, i))) return;
  // Positions and times grow from the one end to the other.
  const int64_t n = std::min(size, kMostMeasured);
  WholeNumbers numbers;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = at_either_end(i, n, size);
    const double value = read_element(from, at);
    if (!is_whole(value)) return;
    numbers.add(value, read_element(to, at));
  }
  numbers.append_to(measured);
}

// Compares the deviation of samples at one place with that of their roundings.
class Feature {
 public:
  explicit Feature(DType to) : to_(to) {}
  void add(double value, double rounded) {
    if (!std::isfinite(value) || !std::isfinite(rounded)) return;
    lowest_ = std::min(lowest_, value);
    highest_ = std::max(highest_, value);
    is_zero_ = is_zero_ && rounded == 0;
    // By Welford's recursion: values may be nearly equal.
    ++count_;
    const double off = value - mean_;
    mean_ += off / static_cast<double>(count_);
    variance_ += off * (value - mean_);
    error_ += (rounded - value) * (rounded - value);
  }
  // It varies by so much that the type could have told of it, were it nearer to 0: what hardly varies, as a constant with noise,
  // says nothing, and what became 0 was too small.
  bool tells_something() const {
    if (count_ < kLeastSamples || is_zero_) return false;
    return highest_ - lowest_ >= ulp(*info(to_).format, std::max(std::abs(lowest_), std::abs(highest_))) / 16 && highest_ > lowest_;
  }
  // The roundings' deviation is half of the samples' or more.
  bool is_merged() const { return error_ >= variance_ / 4; }

 private:
  const DType to_;
  int64_t count_ = 0;
  double mean_ = 0, variance_ = 0, error_ = 0;  // sums of squares
  double lowest_ = std::numeric_limits<double>::infinity(), highest_ = -lowest_;
  bool is_zero_ = true;
};

void measure_features(const TensorView& from, const TensorView& to, int64_t rows, std::vector<ValueMeasure>& measured) {
  const int64_t samples = std::min(rows, kMostSamples);
  if (samples < kLeastSamples) return;
  const int64_t in_row = from.size() / rows, features = std::min(in_row, kMostFeatures);
  int64_t looked_at = 0, merged = 0, first_merged = 0;
  for (int64_t f = 0; f < features; ++f) {
    const int64_t place = spaced(f, features, in_row);
    Feature feature(to.dtype);
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t element = spaced(sample, samples, rows) * in_row + place;
      feature.add(read_element(from, element), read_element(to, element));
    }
    if (!feature.tells_something()) continue;
    ++looked_at;
    if (!feature.is_merged()) continue;
    if (merged++ == 0) first_merged = place;
  }
  if (looked_at == 0) return;
  measured.push_back({kFeaturesMerged, share(merged, looked_at)});
  if (merged > 0) measured.push_back({kMergedFeature, static_cast<double>(first_merged)});
}

// Adds up one of two operands, and what arrived of it.
struct Term {
  double asked = 0, arrived = 0;
  void add(double term, double other, double stored) {
    asked += std::abs(term);
    arrived += term > 0 ? stored - other : term < 0 ? other - stored : 0;
  }
};

// The largest magnitude of an operand, where it is large and is there several times: what a mask is filled with, beside which the
// other operand is meant to be lost. 0: there is none.
double fill_of(const SampledValues& operand) {
  constexpr double kLarge = 1000;
  constexpr int kSeveral = 4;
  double largest = 0;
  int count = 0;
  for (const float value : operand.values) {
    const double magnitude = std::abs(double{value});
    if (!std::isfinite(magnitude) || magnitude < largest) continue;
    count = magnitude > largest ? 1 : count + 1;
    largest = magnitude;
  }
  // A tensor of nothing else is no mask.
  return largest >= kLarge && count >= kSeveral && count < static_cast<int>(operand.values.size()) ? largest : 0;
}

}  // namespace

bool measures_value_loss(uint64_t step) { return step < kFirstSteps || step % kEvery == 0; }

SampledValues sampled_values(const TensorView& view) { return {summed_values(view, kMostMeasured), view.dtype}; }

double SampledValues::unit(double value) const { return is_number ? 0 : ulp(*info(dtype).format, value); }

bool may_round(DType from, DType to) { return is_float(to) && digits_of(from) > digits_of(to); }

std::vector<ValueMeasure> measure_addition(const SampledValues& a, const SampledValues& b, double factor,
                                           const SampledValues& sum) {
  Term of_a, of_b;
  int64_t added = 0, cancelled = 0;
  double left = 0;
  const double fill_of_a = fill_of(a), fill_of_b = fill_of(b);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    const double x = a.value(i), b_value = b.value(i), y = factor * b_value, stored = sum.values[i];
    if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(stored)) continue;
    const bool is_filled = (fill_of_a > 0 && std::abs(x) == fill_of_a) || (fill_of_b > 0 && std::abs(b_value) == fill_of_b);
    if (!is_filled) {
      of_a.add(x, y, stored);
      of_b.add(y, x, stored);
    }
    // A result of 0 may be that of two equal numbers; and a difference of whole numbers, where there are others, is none of
    // roundings.
    if (x == 0 || y == 0 || stored == 0) continue;
    const double unit = std::max(a.unit(x), b.unit(b_value) * std::abs(factor));
    if (is_whole(x) && is_whole(y) && unit < 1) continue;
    ++added;
    if ((x > 0) == (y > 0)) continue;
    if (std::abs(stored) > kCancelledUnits * unit) continue;
    ++cancelled;
    left = std::max(left, std::abs(stored));
  }
  std::vector<ValueMeasure> measured;
  if (added > 0) measured.push_back({kCancelled, share(cancelled, added)});
  if (cancelled > 0) measured.push_back({kCancelledSize, left});
  const bool is_a = of_a.asked < of_b.asked;
  const Term &smaller = is_a ? of_a : of_b, &larger = is_a ? of_b : of_a;
  if (!loses_terms(sum.dtype) || !(smaller.asked > 0) || a.is_number || b.is_number) return measured;
  measured.push_back({kAddendLost, std::max(0.0, 1 - smaller.arrived / smaller.asked)});
  measured.push_back({kAddendSize, smaller.asked / larger.asked});
  return measured;
}

std::vector<ValueMeasure> measure_cast(const TensorView& from, const TensorView& to, int64_t samples) {
  std::vector<ValueMeasure> measured;
  measure_whole_numbers(from, to, measured);
  if (samples > 0) measure_features(from, to, samples, measured);
  return measured;
}

std::vector<ValueMeasure> measure_range(double start, double step, const TensorView& made) {
  std::vector<ValueMeasure> measured;
  if (!is_whole(start) || !is_whole(step)) return measured;
  WholeNumbers numbers;
  const int64_t n = std::min(made.size(), kMostMeasured);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = at_either_end(i, n, made.size());
    numbers.add(start + step * static_cast<double>(at), read_element(made, at));
  }
  numbers.append_to(measured);
  return measured;
}

}  // namespace ulpscope
