#include "ulpscope/analyzers/subject/timeline.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ulpscope {

bool has_nonfinite_loss(const StepRow& step) { return step.loss_known && !std::isfinite(step.loss); }

void StepSet::add(uint64_t step) { add(Range{step, step}); }

void StepSet::add(Range range) {
  // Nearly always behind all others, or with the last of them.
  auto from = ranges_.end();
  while (from != ranges_.begin() && std::prev(from)->last >= range.first) --from;
  if (from != ranges_.begin() && std::prev(from)->last + 1 == range.first) --from;
  auto to = from;
  for (; to != ranges_.end() && (to->first <= range.last || to->first - 1 == range.last); ++to) {
    range.first = std::min(range.first, to->first);
    range.last = std::max(range.last, to->last);
  }
  ranges_.insert(ranges_.erase(from, to), range);
}

void StepSet::add(const StepSet& other) {
  if (ranges_.empty() || other.empty() || other.first() > ranges_.back().last) {
    for (const Range& range : other.ranges_) add(range);
    return;
  }
  StepSet all;
  auto mine = ranges_.begin();
  auto its = other.ranges_.begin();
  while (mine != ranges_.end() || its != other.ranges_.end()) {
    const bool take_mine = its == other.ranges_.end() || (mine != ranges_.end() && mine->first <= its->first);
    all.add(take_mine ? *mine++ : *its++);
  }
  *this = std::move(all);
}

uint64_t StepSet::size() const {
  uint64_t count = 0;
  for (const Range& range : ranges_) count += range.last - range.first + 1;
  return count;
}

bool StepSet::is_within(const StepSet& other) const {
  return std::all_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return std::any_of(other.ranges_.begin(), other.ranges_.end(),
                       [&](const Range& outer) { return outer.first <= range.first && range.last <= outer.last; });
  });
}

uint64_t StepSet::first_of_last_bout() const {
  auto range = std::prev(ranges_.end());
  for (; range != ranges_.begin(); --range) {
    const Range& before = *std::prev(range);
    if (range->first - before.last - 1 > before.last - before.first + 1) break;
  }
  return range->first;
}

bool StepSet::contains(uint64_t step) const {
  const auto behind =
      std::upper_bound(ranges_.begin(), ranges_.end(), step, [](uint64_t of, const Range& range) { return of < range.first; });
  return behind != ranges_.begin() && step <= std::prev(behind)->last;
}

}  // namespace ulpscope
