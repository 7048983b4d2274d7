#include "ulpscope/analyzers/fitting_scale.h"

#include <algorithm>
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

double significand(double magnitude) { return std::ldexp(magnitude, -std::ilogb(magnitude)); }

bool is_stored(const TensorRow& row, const TensorInfo& tensor) { return !row.before_rounding && is_narrow(tensor.dtype); }

bool usable(const TensorRow& row) { return row.known == StatisticsLevel::full && row.scale > 0 && std::isfinite(row.scale); }

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
  if (sure_.empty()) {
    sure_.assign(kLast - kFirst + 1, 0);
    maybe_.assign(kLast - kFirst + 1, 0);
  }
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

// |x| / S <= m 2^j is |x| <= p 2^j with p = m S = f 2^s, 1 <= f < 2. Of the bin [2^e, 2^(e + 1)) that holds for no element where
// j < e - s, for all where j > e - s, and for j = e - s the extremes decide. A value before its rounding may have been half an ulp
// above the threshold that it stands on now. It has not crossed a power of two, but any other threshold.
void FlushCounts::add_sure(const TensorRow& row, bool stored) {
  const double p = scaled_threshold(significand(flushed_.surely_below), row.scale).lower;
  const int s = std::ilogb(p);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  add_at(sure_, -149 - s, histogram.below_range);
  // Bin 0 holds every exponent from -149 to -127.
  add_at(sure_, -126 - s, histogram.bins[0]);
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = std::max(1, first); bin <= last; ++bin) {
    const uint64_t n = histogram.bins[bin];
    const int j = ExponentHistogram::exponent(bin) - s;
    const uint64_t at_threshold = stored ? 0 : count_in_bin(statistics, bin, std::ldexp(p, j)).lower;
    add_at(sure_, j, at_threshold);
    add_at(sure_, j + 1, n - at_threshold);
  }
  add_at(sure_, kLast, histogram.above_range);
}

void FlushCounts::add_maybe(const TensorRow& row, bool stored) {
  const double p = scaled_threshold(significand(flushed_.perhaps_below), row.scale).upper;
  const int s = std::ilogb(p);
  const TensorStatistics& statistics = row.statistics;
  const ExponentHistogram& histogram = statistics.histogram;
  const double smallest = statistics.smallest;
  add_at(maybe_, kFirst, histogram.below_range);
  add_at(maybe_, (smallest >= 0x1p-149 && smallest < 0x1p-126 ? std::ilogb(smallest) : -149) - s, histogram.bins[0]);
  const auto [first, last] = occupied_bins(statistics);
  for (int bin = std::max(1, first); bin <= last; ++bin) {
    const uint64_t n = histogram.bins[bin];
    const int j = ExponentHistogram::exponent(bin) - s;
    if (stored && !is_power_of_two(p)) {
      add_at(maybe_, j - 1, n);
      continue;
    }
    const uint64_t at_threshold = count_in_bin(statistics, bin, std::ldexp(p, j)).upper;
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

const FloatFormat* format_to_ask(const Snapshot& reader) {
  const bool rounded = std::any_of(reader.tensors().begin(), reader.tensors().end(), [](const TensorInfo& tensor) {
    return is_computed_gradient(tensor.role) && is_plainly_narrow(tensor.dtype);
  });
  return rounded ? nullptr : &binary16;
}

FittingScale::FittingScale(const Snapshot& reader, const Selection& selection, const FloatFormat* what_if, double flushed_limit,
                           uint64_t broken_from)
    : selection_(selection),
      upstream_(reader, flushed_limit),
      what_if_(what_if),
      limit_(flushed_limit),
      broken_from_(broken_from),
      fits_(selection.size()),
      flushes_(selection.size()) {
  const std::vector<TensorInfo>& tensors = reader.tensors();
  for (const TracePart& part : reader.parts()) {
    // By op: whether it reads subnormals as zero, and whether it would read those of FP16 and BF16 so.
    std::vector<bool> flushing(reader.ops().size()), flushing_narrow(reader.ops().size());
    for (const uint32_t i : part.tensors) {
      const TensorInfo& tensor = tensors[i];
      flushing[tensor.op] = flushing[tensor.op] || tensor.flushes_inputs;
      flushing_narrow[tensor.op] = flushing_narrow[tensor.op] || tensor.flushes_narrow_products;
    }
    std::set<std::pair<uint32_t, uint8_t>> read, read_narrow;
    for (const GraphEdge& edge : reader.graph().edges()) {
      if (flushing[edge.consumer]) read.emplace(edge.producer, edge.slot);
      if (flushing_narrow[edge.consumer]) read_narrow.emplace(edge.producer, edge.slot);
    }
    ReadAsZero& of_part = read_as_zero_.emplace_back(ReadAsZero{part.steps.last, {}});
    for (const TensorInfo& tensor : tensors) {
      const std::pair made{tensor.op, tensor.slot};
      const FloatFormat* const format = is_computed_gradient(tensor.role) && what_if_ ? what_if_ : info(tensor.dtype).format;
      const bool is_half = format == &binary16 || format == &bfloat16;
      of_part.tensors.push_back(read.contains(made) || (is_half && read_narrow.contains(made)));
    }
  }
}

bool FittingScale::is_read_as_zero(const TensorRow& row) const {
  const auto part = std::find_if(read_as_zero_.begin(), read_as_zero_.end(),
                                 [&](const ReadAsZero& candidate) { return row.step < candidate.end; });
  return part != read_as_zero_.end() && part->tensors[row.tensor];
}

void FittingScale::see(const TensorRow& row) { upstream_.see(row); }

void FittingScale::add(const TensorRow& row) {
  if (row.step >= broken_from_) return;
  const TensorInfo& tensor = selection_.tensor(row.tensor);
  // Gradients contain the loss scale until they are unscaled, and so does the scaled loss, which is FP32 in mixed precision too
  // unless it was rounded here.
  const bool computed = is_computed_gradient(tensor.role) && !tensor.stays_wide;
  const bool carries_scale = computed || tensor.role == Role::accumulated_gradient ||
                             (tensor.role == Role::loss && row.scale != 1.0 && is_narrow(tensor.dtype));
  // What FP8 holds is scaled anew: no loss scale changes what fits there.
  if (!carries_scale || !is_float(tensor.dtype) || is_quantized(tensor.dtype)) return;
  const FloatFormat& format = computed && what_if_ ? *what_if_ : *info(tensor.dtype).format;
  if (!step_ || step_->step != row.step) {
    end_step();
    step_ = StepFit{row.step, {}, {}, false};
  }
  std::optional<TensorFit>& fit = fits_[row.tensor];
  if (!fit) fit = TensorFit{};
  if (upstream_.is_behind(row)) {
    fit->hidden = step_->hidden = true;
    return;
  }
  if (const auto largest = largest_fitting(row, tensor, format)) {
    narrow_from_above(step_->largest, *largest);
    narrow_from_above(fit->largest, *largest);
  }
  // Underflow is judged where a gradient is rounded, or would be.
  const bool judged = is_narrow(tensor.dtype) ? is_gradient(tensor.role) : computed && what_if_;
  if (!judged) return;
  Rounding rounding = rounding_of(tensor, format);
  const bool read_as_zero = is_read_as_zero(row);
  if (read_as_zero) rounding.subnormals = SubnormalResults::flush;
  const MagnitudeThreshold flushed = magnitude_thresholds(format, rounding).flushed;
  std::unique_ptr<FlushCounts>& counts = flushes_[row.tensor][read_as_zero];
  if (!counts) counts = std::make_unique<FlushCounts>(flushed);
  if (!counts->add(row, tensor)) return;
  row_.restart(flushed);
  row_.add(row, tensor);
  if (const auto smallest = row_.smallest_fitting(limit_)) raise(step_->smallest, *smallest);
}

void FittingScale::end_step() {
  if (!step_) return;
  if (step_->hidden) open_bounds(*step_);
  hidden_steps_ += step_->hidden;
  run_.hidden = run_.hidden || step_->hidden;
  if (step_->largest) narrow_from_above(run_.largest, *step_->largest);
  if (steps_.empty() || steps_.back().largest != step_->largest || steps_.back().smallest != step_->smallest)
    steps_.push_back(*step_);
  step_.reset();
}

void FittingScale::finish() {
  end_step();
  for (uint32_t i = 0; i < fits_.size(); ++i) {
    if (!fits_[i]) continue;
    for (const auto& counts : flushes_[i]) {
      if (const auto smallest = counts ? counts->smallest_fitting(limit_) : std::nullopt) raise(fits_[i]->smallest, *smallest);
    }
    if (fits_[i]->hidden) open_bounds(*fits_[i]);
    const auto& [largest, smallest, hidden] = *fits_[i];
    if (largest && (!decides_largest_ || largest->upper < fits_[*decides_largest_]->largest->upper)) decides_largest_ = i;
    if (!smallest) continue;
    raise(run_.smallest, *smallest);
    if (!decides_smallest_ || smallest->lower > fits_[*decides_smallest_]->smallest->lower) decides_smallest_ = i;
  }
}

}  // namespace ulpscope
