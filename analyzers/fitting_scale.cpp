#include "ulpscope/analyzers/fitting_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace ulpscope {

namespace {

constexpr int kNoLower = ExponentBounds::kNoLower;
constexpr int kNoUpper = ExponentBounds::kNoUpper;

// The largest k with magnitude * 2^k < threshold: with m 2^a and n 2^b, 1 <= m, n < 2, that is b - a if m < n, else b - a - 1.
int largest_shift_below(double magnitude, double threshold) {
  const int shift = std::ilogb(threshold) - std::ilogb(magnitude);
  return std::ldexp(magnitude, shift) < threshold ? shift : shift - 1;
}

void narrow_from_above(std::optional<ExponentBounds>& into, const ExponentBounds& other) {
  if (!into) {
    into = other;
    return;
  }
  into->lower = std::min(into->lower, other.lower);
  into->upper = std::min(into->upper, other.upper);
}

// Of a step or a tensor some of whose rows are no evidence.
template <typename Fit>
void open_bounds(Fit& fit) {
  if (!fit.largest) fit.largest.emplace();
  if (!fit.smallest) fit.smallest.emplace();
  fit.largest->lower = kNoLower;
  fit.smallest->upper = kNoUpper;
}

bool is_power_of_two(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5;
}

// 2^e, e being the exponent of a bin: a normal number, made without a call.
double lower_edge(int bin) { return std::bit_cast<double>(static_cast<uint64_t>(ExponentHistogram::exponent(bin) + 1023) << 52); }

double significand(double magnitude) { return std::ldexp(magnitude, -std::ilogb(magnitude)); }

bool is_stored(const TensorRow& row, const TensorInfo& tensor) { return !row.before_rounding && is_narrow(tensor.dtype); }

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
      const double half =
          std::ldexp(1.0, std::max(std::ilogb(largest), stored.smallest_normal_exponent()) - stored.fraction_bits - 1);
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

void FlushCounts::add_at(std::vector<uint64_t>& counts, int exponent, uint64_t n) {
  if (n == 0) return;
  const int used = std::clamp(exponent, kFirst, kLast);
  counts[used - kFirst] += n;
  first_used_ = std::min(first_used_, used);
  last_used_ = std::max(last_used_, used);
}

void FlushCounts::restart(const MagnitudeThreshold& flushed) {
  flushed_ = flushed;
  for (int used = first_used_; used <= last_used_; ++used) sure_[used - kFirst] = maybe_[used - kFirst] = 0;
  first_used_ = kLast;
  last_used_ = kFirst;
  base_ = lost_ = 0;
  uncounted_ = false;
}

bool FlushCounts::add(const TensorRow& row, const TensorInfo& tensor) {
  const TensorStatistics& statistics = row.statistics;
  if (!usable(row) || statistics.nonfinite() > 0) return false;
  make_room();
  base_ += share_base(row);
  const bool stored = is_stored(row, tensor);
  if (stored) {
    if (row.rounding_known) {
      lost_ += row.rounding.flushed;
    } else {
      uncounted_ = true;
    }
  }
  if (statistics.finite_nonzero() == 0) return true;
  if (flushed_.surely_below > 0) add_sure(row, stored);
  if (flushed_.perhaps_below > 0) add_maybe(row, stored);
  return true;
}

void FlushCounts::make_room() {
  sure_.resize(kLast - kFirst + 1);
  maybe_.resize(kLast - kFirst + 1);
}

void FlushCounts::add(const FlushCounts& other) {
  if (other.sure_.empty()) return;
  make_room();
  for (int used = other.first_used_; used <= other.last_used_; ++used) {
    add_at(sure_, used, other.sure_[used - kFirst]);
    add_at(maybe_, used, other.maybe_[used - kFirst]);
  }
  base_ += other.base_;
  lost_ += other.lost_;
  uncounted_ = uncounted_ || other.uncounted_;
}

// |x| / S <= m 2^j is |x| <= p 2^j with p = m S = f 2^s, 1 <= f < 2. Of the bin [2^e, 2^(e + 1)) that holds for no element where
// j < e - s, for all where j > e - s, and for j = e - s the extremes decide. A value before its rounding may have been half an ulp
// above the threshold that it stands on now. It has not crossed a power of two, but any other threshold.
void FlushCounts::add_sure(const TensorRow& row, bool stored) {
  const double p = scaled_threshold(significand(flushed_.surely_below), row.scale).lower;
  const int s = std::ilogb(p);
  const double f = std::ldexp(p, -s);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  add_at(sure_, -149 - s, histogram.below_range);
  // Bin 0 holds every exponent from -149 to -127.
  add_at(sure_, -126 - s, histogram.bins[0]);
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = std::max(1, first); bin <= last; ++bin) {
    const uint64_t n = histogram.bins[bin];
    const int j = ExponentHistogram::exponent(bin) - s;
    const uint64_t at_threshold = stored ? 0 : count_in_bin(statistics, bin, f * lower_edge(bin)).lower;
    add_at(sure_, j, at_threshold);
    add_at(sure_, j + 1, n - at_threshold);
  }
  add_at(sure_, kLast, histogram.above_range);
}

void FlushCounts::add_maybe(const TensorRow& row, bool stored) {
  const double p = scaled_threshold(significand(flushed_.perhaps_below), row.scale).upper;
  const int s = std::ilogb(p);
  const double f = std::ldexp(p, -s);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  const double smallest = statistics.smallest;
  add_at(maybe_, kFirst, histogram.below_range);
  add_at(maybe_, (smallest >= 0x1p-149 && smallest < 0x1p-126 ? std::ilogb(smallest) : -149) - s, histogram.bins[0]);
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = std::max(1, first); bin <= last; ++bin) {
    const uint64_t n = histogram.bins[bin];
    const int j = ExponentHistogram::exponent(bin) - s;
    if (stored && f != 1) {
      add_at(maybe_, j - 1, n);
      continue;
    }
    const uint64_t at_threshold = count_in_bin(statistics, bin, f * lower_edge(bin)).upper;
    add_at(maybe_, j, at_threshold);
    add_at(maybe_, j + 1, n - at_threshold);
  }
  add_at(maybe_, 128 - s, histogram.above_range);
}

// The highest j up to which the count stays within the budget.
std::optional<int> FlushCounts::highest_threshold(const std::vector<uint64_t>& counts, uint64_t start, double budget) const {
  uint64_t count = start;
  if (static_cast<double>(count) > budget) return std::nullopt;
  for (int j = first_used_; j <= last_used_; ++j) {
    count += counts[j - kFirst];
    if (static_cast<double>(count) > budget) return j - 1;
  }
  return kLast;
}

std::optional<ExponentBounds> FlushCounts::smallest_fitting(double limit) const {
  if (base_ == 0 || flushed_.perhaps_below == 0) return std::nullopt;
  const double budget = limit * static_cast<double>(base_);
  // Elements with |x| / S <= m 2^j are flushed at the scale 2^k with j = exponent of the threshold - k.
  ExponentBounds bounds;
  if (const auto j = highest_threshold(sure_, 0, budget); j && *j < kLast && flushed_.surely_below > 0)
    bounds.lower = std::ilogb(flushed_.surely_below) - *j;
  if (uncounted_) return bounds;
  if (const auto j = highest_threshold(maybe_, lost_, budget); j && *j >= kFirst)
    bounds.upper = std::ilogb(flushed_.perhaps_below) - *j;
  return bounds;
}

void TensorFit::append(const TensorFit& later) {
  if (later.largest) narrow_from_above(largest, *later.largest);
  for (size_t i = 0; i < flushes.size(); ++i) {
    if (!later.flushes[i]) continue;
    if (!flushes[i]) flushes[i] = std::make_unique<FlushCounts>(later.flushes[i]->threshold());
    flushes[i]->add(*later.flushes[i]);
  }
  hidden = hidden || later.hidden;
}

void StepFit::beside(const StepFit& other) {
  if (other.largest) narrow_from_above(largest, *other.largest);
  if (other.smallest) raise(smallest, *other.smallest);
  hidden = hidden || other.hidden;
}

void RunFits::append(const RunFits& later) {
  tensors.append(later.tensors);
  flushed.append(later.flushed);
  const bool goes_on = !steps.empty() && !later.steps.empty() && later.steps.front().fits_like(steps.back());
  steps.insert(steps.end(), later.steps.begin() + goes_on, later.steps.end());
  hidden_steps.add(later.hidden_steps);
}

void RunFits::beside(const RunFits& other) {
  tensors.beside(other.tensors);
  flushed.beside(other.flushed);
  hidden_steps.add(other.hidden_steps);
  std::vector<StepFit> all;
  std::optional<StepFit> mine, its;  // that hold
  size_t i = 0, j = 0;
  while (i < steps.size() || j < other.steps.size()) {
    const uint64_t next =
        std::min(i < steps.size() ? steps[i].step : UINT64_MAX, j < other.steps.size() ? other.steps[j].step : UINT64_MAX);
    if (i < steps.size() && steps[i].step == next) mine = steps[i++];
    if (j < other.steps.size() && other.steps[j].step == next) its = other.steps[j++];
    StepFit both;
    both.step = next;
    for (const auto& fit : {mine, its})
      if (fit) both.beside(*fit);
    if (all.empty() || !all.back().fits_like(both)) all.push_back(both);
  }
  steps = std::move(all);
}

void FittingScale::begin(const AnalysisContext& context) {
  context_ = &context;
  what_if_ = asked_ ? asked_ : format_to_ask(context.trace);
  upstream_.emplace(context.trace, limit_);
  read_as_zero_.emplace(context, what_if_);
}

void FittingScale::update(const Block& block) {
  RunFits& fits = fits_.at(block.rank, block.step);
  if (block.begins) upstream_->begin_step(block.step.graph);
  for (const TensorRow& row : block.rows) {
    if (upstream_->see(row)) ++fits.flushed[row.tensor].rows;
    if (context_->selection.contains(row)) add(row, block, fits);
  }
  if (!block.ends || !step_) return;
  if (step_->hidden) {
    open_bounds(*step_);
    fits.hidden_steps.add(step_->step);
  }
  if (fits.steps.empty() || !fits.steps.back().fits_like(*step_)) fits.steps.push_back(*step_);
  step_.reset();
}

void FittingScale::add(const TensorRow& row, const Block& block, RunFits& fits) {
  const TensorInfo& tensor = context_->selection.tensor(row.tensor);
  // Gradients contain the loss scale until they are unscaled, and so does the scaled loss, which is FP32 in mixed precision too
  // unless it was rounded here.
  const bool computed = is_computed_gradient(tensor.role) && !tensor.stays_wide;
  const bool carries_scale = computed || tensor.role == Role::accumulated_gradient ||
                             (tensor.role == Role::loss && row.scale != 1.0 && is_narrow(tensor.dtype));
  // What FP8 holds is scaled anew: no loss scale changes what fits there.
  if (!carries_scale || !is_float(tensor.dtype) || is_quantized(tensor.dtype)) return;
  const FloatFormat& format = computed && what_if_ ? *what_if_ : *info(tensor.dtype).format;
  // With the range of FP32 a gradient needs no loss scale, and bears any that a scaler would try.
  if (format.largest_exponent() >= binary32.largest_exponent() && asked_ == nullptr) return;
  if (!step_) step_.emplace().step = row.step;
  TensorFit& fit = fits.tensors[row.tensor];
  if (upstream_->is_behind(row)) {
    fit.hidden = step_->hidden = true;
    return;
  }
  if (const auto largest = largest_fitting(row, tensor, format)) {
    narrow_from_above(step_->largest, *largest);
    narrow_from_above(fit.largest, *largest);
  }
  // Underflow is judged where a gradient is rounded, or would be.
  const bool judged = is_narrow(tensor.dtype) ? is_gradient(tensor.role) : computed && what_if_;
  if (!judged) return;
  const bool read_as_zero = read_as_zero_->contains(block.part, row.tensor);
  std::unique_ptr<FlushCounts>& counts = fit.flushes[read_as_zero];
  if (!counts) {
    Rounding rounding = rounding_of(tensor, format);
    if (read_as_zero) rounding.subnormals = SubnormalResults::flush;
    counts = std::make_unique<FlushCounts>(magnitude_thresholds(format, rounding).flushed);
  }
  row_.restart(counts->threshold());
  if (!row_.add(row, tensor)) return;
  counts->add(row_);
  if (const auto smallest = row_.smallest_fitting(limit_)) raise(step_->smallest, *smallest);
}

FittingScales FittingScale::result() const {
  FittingScales result;
  result.what_if = what_if_;
  RunFits room, other_room;
  const RunFits& judged = fits_.judged(room);
  result.steps = judged.steps;
  result.hidden_steps = judged.hidden_steps.size();
  result.run.hidden = result.hidden_steps > 0;
  for (const StepFit& step : judged.steps)
    if (step.largest) narrow_from_above(result.run.largest, *step.largest);
  const size_t tensors = context_->selection.size();
  result.tensors.resize(tensors);
  for (uint32_t i = 0; i < tensors; ++i) {
    const TensorFit* const fit = judged.tensors.find(i);
    if (fit == nullptr) continue;
    FittingScales::Tensor& tensor = result.tensors[i].emplace(FittingScales::Tensor{fit->largest, {}, fit->hidden});
    for (const auto& counts : fit->flushes) {
      if (const auto smallest = counts ? counts->smallest_fitting(limit_) : std::nullopt) raise(tensor.smallest, *smallest);
    }
    if (tensor.hidden) open_bounds(tensor);
    const auto& [largest, smallest, hidden] = tensor;
    std::optional<uint32_t>&most = result.decides_largest, &least = result.decides_smallest;
    if (largest && (!most || largest->upper < result.tensors[*most]->largest->upper)) most = i;
    if (!smallest) continue;
    raise(result.run.smallest, *smallest);
    if (!least || smallest->lower > result.tensors[*least]->smallest->lower) least = i;
  }
  result.flushed_rows.resize(tensors);
  for (const bool broken : {false, true}) {
    const PerTensor<RunFits::Count>& flushed = (broken ? fits_.broken(other_room) : judged).flushed;
    for (const uint32_t i : flushed.tensors()) result.flushed_rows[i] += flushed.find(i)->rows;
  }
  return result;
}

}  // namespace ulpscope
