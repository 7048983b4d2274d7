#include "ulpscope/recorder/value_loss.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/emulation/format.h"
#include "ulpscope/recorder/running_sum.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

constexpr uint64_t kFirstSteps = 8, kEvery = 16;
constexpr int64_t kMostMeasured = 1024;
constexpr int64_t kMostFeatures = 32, kMostPairs = 16, kLeastPairs = 8;
// Of a cast so many elements are read before it is known that they are no whole numbers.
constexpr int64_t kFirstRead = 8;

// The index of the i-th of `count` elements that are spread over so many.
int64_t spaced(int64_t i, int64_t count, int64_t size) {
  return count == 1 ? 0 : (size - 1) / (count - 1) * i + (size - 1) % (count - 1) * i / (count - 1);
}

bool is_whole(double value) { return !std::isfinite(value) || value == std::trunc(value); }

// One unit in the last place that a value of this magnitude has in the type.
double ulp(double magnitude, DType dtype) {
  return std::ldexp(1.0, std::max(std::ilogb(magnitude), 1 - info(dtype).format->bias) - info(dtype).format->fraction_bits);
}

// Counts neighbours that differ, and those of them that rounding made equal.
class Neighbours {
 public:
  void add(double a, double b, double rounded_a, double rounded_b) {
    if (!std::isfinite(a) || !std::isfinite(b) || a == b) return;
    ++differ_;
    equal_ += rounded_a == rounded_b;
  }
  int64_t differ() const { return differ_; }
  double share_equal() const { return differ_ > 0 ? static_cast<double>(equal_) / static_cast<double>(differ_) : 0; }

 private:
  int64_t differ_ = 0, equal_ = 0;
};

// Whole numbers and what rounding made of them; nothing of those that it left as they were.
class WholeNumbers {
 public:
  void add(double value, double rounded, bool follows) {
    if (!std::isfinite(value)) return;
    ++count_;
    if (rounded != value) {
      ++changed_;
      if (distinct_.size() < kFewest) distinct_.insert(value);
    }
    if (follows) neighbours_.add(last_, value, last_rounded_, rounded);
    last_ = value;
    last_rounded_ = rounded;
  }
  void append_to(std::vector<Measured>& measured) const {
    // A mask of 0 and -1e9 has one number that is another one then, and loses nothing.
    if (neighbours_.share_equal() == 0 && distinct_.size() < kFewest) return;
    measured.push_back({kWholeNumbersRounded, static_cast<double>(changed_) / static_cast<double>(count_)});
    measured.push_back({kNeighboursMerged, neighbours_.share_equal()});
  }

 private:
  static constexpr size_t kFewest = 8;

  int64_t count_ = 0, changed_ = 0;
  std::set<double> distinct_;  // of those that changed, some
  double last_ = 0, last_rounded_ = 0;
  Neighbours neighbours_;
};

void measure_whole_numbers(const TensorView& from, const TensorView& to, std::vector<Measured>& measured) {
  const int64_t size = from.size(), first = std::min(size, kFirstRead);
  for (int64_t i = 0; i < first; ++i)
    if (!is_whole(read_element(from, i))) return;
  // Neighbours are looked at in two runs, one at each end: positions and times grow from the one to the other.
  const int64_t n = std::min(size, kMostMeasured), in_first_run = size == n ? n : n / 2;
  WholeNumbers numbers;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i < in_first_run ? i : size - n + i;
    const double value = read_element(from, at);
    if (!is_whole(value)) return;
    numbers.add(value, read_element(to, at), i > 0 && i != in_first_run);
  }
  numbers.append_to(measured);
}

void measure_features(const TensorView& from, const TensorView& to, int64_t rows, std::vector<Measured>& measured) {
  const int64_t pairs = std::min(rows / 2, kMostPairs);
  if (pairs < kLeastPairs) return;
  const int64_t in_row = from.size() / rows, features = std::min(in_row, kMostFeatures);
  if (features == 0) return;
  int64_t told_apart = 0, merged = 0, first_merged = 0;
  for (int64_t f = 0; f < features; ++f) {
    const int64_t feature = spaced(f, features, in_row);
    Neighbours samples;
    for (int64_t p = 0; p < pairs; ++p) {
      const int64_t row = spaced(p, pairs, rows / 2), a = row * in_row + feature, b = (row + rows / 2) * in_row + feature;
      samples.add(read_element(from, a), read_element(from, b), read_element(to, a), read_element(to, b));
    }
    if (samples.differ() < kLeastPairs) continue;
    ++told_apart;
    if (samples.share_equal() < 0.5) continue;
    if (merged++ == 0) first_merged = feature;
  }
  if (told_apart == 0) return;
  measured.push_back({kFeaturesMerged, static_cast<double>(merged) / static_cast<double>(told_apart)});
  if (merged > 0) measured.push_back({kMergedFeature, static_cast<double>(first_merged)});
}

}  // namespace

bool measures_value_loss(uint64_t step) { return step < kFirstSteps || step % kEvery == 0; }

SampledValues sampled_values(const TensorView& view) { return {summed_values(view, kMostMeasured), view.dtype}; }

std::vector<Measured> measure_addition(const SampledValues& a, const SampledValues& b, double factor, const SampledValues& sum) {
  struct Term {
    double asked = 0, arrived = 0;
    void add(double term, double other, double stored) {
      asked += std::abs(term);
      arrived += term > 0 ? stored - other : term < 0 ? other - stored : 0;
    }
  } of_a, of_b;
  int64_t added = 0, cancelled = 0;
  for (size_t i = 0; i < sum.values.size(); ++i) {
    const double x = a.values[i], y = factor * b.values[i], stored = sum.values[i];
    if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(stored)) continue;
    of_a.add(x, y, stored);
    of_b.add(y, x, stored);
    if (x == 0 || y == 0) continue;
    ++added;
    if ((x > 0) == (y > 0)) continue;
    const double unit = std::max(ulp(std::abs(x), a.dtype), ulp(std::abs(double{b.values[i]}), b.dtype) * std::abs(factor));
    cancelled += std::abs(stored) <= kCancelledUnits * unit;
  }
  std::vector<Measured> measured;
  if (added > 0) measured.push_back({kCancelled, static_cast<double>(cancelled) / static_cast<double>(added)});
  const Term& smaller = of_a.asked < of_b.asked ? of_a : of_b;
  if (loses_terms(sum.dtype) && smaller.asked > 0)
    measured.push_back({kAddendLost, std::max(0.0, 1 - smaller.arrived / smaller.asked)});
  return measured;
}

std::vector<Measured> measure_cast(const TensorView& from, const TensorView& to, int64_t samples) {
  std::vector<Measured> measured;
  measure_whole_numbers(from, to, measured);
  if (samples > 0 && is_float(from.dtype)) measure_features(from, to, samples, measured);
  return measured;
}

std::vector<Measured> measure_range(double start, double step, const TensorView& made) {
  std::vector<Measured> measured;
  if (!is_whole(start) || !is_whole(step)) return measured;
  WholeNumbers numbers;
  for (int64_t i = 0; i < std::min(made.size(), kMostMeasured); ++i)
    numbers.add(start + step * static_cast<double>(i), read_element(made, i), i > 0);
  numbers.append_to(measured);
  return measured;
}

}  // namespace ulpscope
