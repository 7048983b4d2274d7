#include "ulpscope/analyzers/subject/step_facts.h"

namespace ulpscope {

namespace {

constexpr double kMostSeconds = 1e6;  // of a step: more is no time that one took

void keep_higher(std::optional<LossPeak>& into, const LossPeak& later) {
  if (!into || later.loss > into->loss) into = later;
}

}  // namespace

void Clipping::add(const StepRow& row) {
  if (row.skipped || !row.norm_known || !std::isfinite(row.gradient_norm) || !(row.clipped_gradient_norm > 0)) return;
  constexpr double kRoundings = 0.01;  // of 16-bit gradients
  ++steps;
  const double ratio = row.gradient_norm / row.clipped_gradient_norm;
  by_scale = by_scale && row.scale_before > 1 && std::abs(ratio - row.scale_before) <= kRoundings * row.scale_before;
  least = std::min(least, ratio);
  least_norm = std::min(least_norm, row.gradient_norm);
  largest_norm = std::max(largest_norm, row.gradient_norm);
}

void Clipping::add(const Clipping& other) {
  steps += other.steps;
  by_scale = by_scale && other.by_scale;
  least = std::min(least, other.least);
  least_norm = std::min(least_norm, other.least_norm);
  largest_norm = std::max(largest_norm, other.largest_norm);
}

void StepTotals::add(const StepRow& row, bool adapts_scale) {
  if (count++ == 0) first = row;
  last = row;
  with_ops += row.level != RecordLevel::off;
  steps.add(row.step);
  if (row.loss_known) {
    if (first_losses.size() < kFirstLosses) first_losses.push_back(row.loss);
    if (last_losses.size() == kLastLosses) last_losses.erase(last_losses.begin());
    last_losses.push_back(row.loss);
    lowest_losses.add(row.step, row.loss);
  }
  if (row.loss_known && std::isfinite(row.loss)) keep_higher(peak, {row.loss, row.step});
  if (has_nonfinite_loss(row)) nonfinite_losses.add(row.step);
  peak_memory = std::max(peak_memory, row.peak_memory);
  if (row.seconds > 0 && row.seconds < kMostSeconds) nanoseconds += std::llround(1e9 * row.seconds);
  lowest_scale = std::min({lowest_scale, row.scale_before, row.scale_after});
  highest_scale = std::max({highest_scale, row.scale_before, row.scale_after});
  lowest_scale_after = std::fmin(lowest_scale_after, row.scale_after);
  const bool has_factor = row.scale_before != 1 || row.scale_after != 1;
  scaled = scaled || has_factor;
  // Of runs that are read as one some may be without a scaler.
  const std::array<bool, 3> inside{row.scale_before < kZones[0], row.scale_before<kZones[1], row.scale_before> kZones[2]};
  for (size_t i = 0; i < zones.size() && (has_factor || adapts_scale); ++i) {
    zones[i].steps += inside[i];
    zones[i].skipped += inside[i] && row.skipped;
  }
  if (row.skipped) skipped.add(row.step);
  clipping.add(row);
  trailing_skips = row.skipped ? trailing_skips + 1 : 0;
  if (trailing_skips == count) leading_skips = count;
  longest_skip_run = std::max(longest_skip_run, trailing_skips);
  if (row.skipped || row.scale_after != row.scale_before) {
    changes.push_back({row.step, row.scale_before, row.scale_after, row.skipped, clean_steps});
    clean_steps = 0;
  } else {
    ++clean_steps;
  }
  rate_was_zero = rate_was_zero && row.learning_rate == 0;
}

void StepTotals::append(const StepTotals& later) {
  if (later.count == 0) return;
  if (count == 0) first = later.first;
  last = later.last;
  steps.add(later.steps);
  skipped.add(later.skipped);
  nonfinite_losses.add(later.nonfinite_losses);
  fitted.add(later.fitted);
  first_losses.insert(first_losses.end(), later.first_losses.begin(), later.first_losses.end());
  if (first_losses.size() > kFirstLosses) first_losses.resize(kFirstLosses);
  last_losses.insert(last_losses.end(), later.last_losses.begin(), later.last_losses.end());
  lowest_losses.append(later.lowest_losses);
  if (later.peak) keep_higher(peak, *later.peak);
  if (last_losses.size() > kLastLosses) last_losses.erase(last_losses.begin(), last_losses.end() - kLastLosses);
  peak_memory = std::max(peak_memory, later.peak_memory);
  nanoseconds += later.nanoseconds;
  lowest_scale = std::min(lowest_scale, later.lowest_scale);
  highest_scale = std::max(highest_scale, later.highest_scale);
  lowest_scale_after = std::fmin(lowest_scale_after, later.lowest_scale_after);
  scaled = scaled || later.scaled;
  for (size_t i = 0; i < zones.size(); ++i) {
    zones[i].steps += later.zones[i].steps;
    zones[i].skipped += later.zones[i].skipped;
  }
  clipping.add(later.clipping);
  longest_skip_run = std::max({longest_skip_run, later.longest_skip_run, trailing_skips + later.leading_skips});
  if (leading_skips == count) leading_skips += later.leading_skips;
  trailing_skips = later.trailing_skips == later.count ? trailing_skips + later.count : later.trailing_skips;
  const size_t joint = changes.size();
  changes.insert(changes.end(), later.changes.begin(), later.changes.end());
  if (joint < changes.size()) {
    changes[joint].clean_steps += clean_steps;
    clean_steps = later.clean_steps;
  } else {
    clean_steps += later.clean_steps;
  }
  count += later.count;
  with_ops += later.with_ops;
  rate_was_zero = rate_was_zero && later.rate_was_zero;
}

void StepTotals::beside(const StepTotals& other) {
  if (count == 0) {
    *this = other;
    return;
  }
  steps.add(other.steps);
  skipped.add(other.skipped);
  nonfinite_losses.add(other.nonfinite_losses);
  fitted.add(other.fitted);
  peak_memory = std::max(peak_memory, other.peak_memory);
  nanoseconds = std::max(nanoseconds, other.nanoseconds);
  scaled = scaled || other.scaled;
  rate_was_zero = rate_was_zero && other.rate_was_zero;
}

bool recurs(uint64_t some, uint64_t steps, uint64_t fewest) {
  return some >= fewest && static_cast<double>(some) > 0.02 * static_cast<double>(steps);
}

bool wastes_many(uint64_t wasted, uint64_t steps) { return (wasted > 0 && wasted == steps) || recurs(wasted, steps, 5); }

bool harms_losses(const StepTotals& steps) {
  return wastes_many(steps.nonfinite_losses.size(), steps.count) || !steps.nonfinite_losses.is_within(steps.skipped);
}

bool StepTotals::takes_growth_back() const {
  if (trailing_skips == 0 || changes.size() <= trailing_skips) return false;
  const ScaleChange &growth = changes[changes.size() - trailing_skips - 1], &first_skip = changes[changes.size() - trailing_skips];
  return growth.after > growth.before && first_skip.clean_steps == 0 && last.scale_after > growth.before;
}

StepTotals::ScaleThen StepTotals::scale_at(uint64_t step) const {
  ScaleThen then{first.scale_before, first.scale_before};
  for (const ScaleChange& change : changes) {
    if (change.step >= step) break;
    then = {change.after, std::max(then.highest, change.after)};
  }
  return then;
}

double StepTotals::mean_loss(size_t n) const {
  double sum = 0;
  for (size_t i = last_losses.size() - n; i < last_losses.size(); ++i) sum += last_losses[i];
  return sum / static_cast<double>(n);
}

void StepFacts::add(const TracePart& part, const StepRow& row, bool is_fitted) {
  scales_loss_ = scales_loss_ || row.scale_before != 1;
  steps_of_[part.path].add(row.step);
  if (row.step < range_.first || row.step >= range_.last) return;
  StepTotals& totals = totals_.at(part.run.rank, row);
  totals.add(row, part.run.dynamic_loss_scale);
  if (is_fitted) totals.fitted.add(row.step);
}

void StepFacts::merge(StepFacts&& other) {
  scales_loss_ = scales_loss_ || other.scales_loss_;
  for (const auto& [path, steps] : other.steps_of_) steps_of_[path].add(steps);
  totals_.merge(std::move(other.totals_));
}

StepTotals StepFacts::judged() const {
  StepTotals room;
  return totals_.judged(room);
}

StepSet StepFacts::steps_of(const TracePart& part) const {
  const auto found = steps_of_.find(part.path);
  return found == steps_of_.end() ? StepSet() : found->second;
}

}  // namespace ulpscope
