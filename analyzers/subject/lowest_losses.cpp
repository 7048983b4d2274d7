#include "ulpscope/analyzers/subject/lowest_losses.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

void LowestLosses::add(uint64_t step, double loss) {
  if (!std::isfinite(loss)) return;
  open_[step / kSteps].push_back(loss);
  close_if_whole(step / kSteps);
  keep_ends();
}

void LowestLosses::append(const LowestLosses& later) {
  if (later.lowest_) keep_lower(*later.lowest_);
  for (const auto& [number, losses] : later.open_) {
    std::vector<double>& all = open_[number];
    all.insert(all.end(), losses.begin(), losses.end());
    close_if_whole(number);
  }
  keep_ends();
}

void LowestLosses::close_if_whole(uint64_t number) {
  std::vector<double>& losses = open_.at(number);
  if (losses.size() < kSteps) return;
  std::sort(losses.begin(), losses.end());
  keep_lower({number * kSteps, median(losses), std::move(losses)});
  open_.erase(number);
}

void LowestLosses::keep_ends() {
  while (open_.size() > 2) open_.erase(std::next(open_.begin()));
}

void LowestLosses::keep_lower(const LossBlock& other) {
  if (!lowest_ || std::pair(other.median, other.first_step) < std::pair(lowest_->median, lowest_->first_step)) lowest_ = other;
}

}  // namespace ulpscope
