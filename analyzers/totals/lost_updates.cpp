#include "ulpscope/analyzers/totals/lost_updates.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

constexpr size_t kWindow = 10;  // steps that are judged together, where they were recorded
constexpr size_t kBlocks = 32;  // of the later half of the steps, through which a line is laid

bool is_stalled(const LostUpdates& updates) {
  return updates.nonzero > 0 && 100 * updates.lost >= kStalledPercent * updates.nonzero;
}

// From where on every window to the end has lost that much.
std::optional<Stall> recorded_stall(std::span<const UpdateStep> steps) {
  if (steps.size() < kWindow) return std::nullopt;
  std::optional<Stall> stall;
  for (size_t first = steps.size() - kWindow + 1; first-- > 0;) {
    if (!is_stalled(add_up(steps.subspan(first, kWindow)))) break;
    stall = Stall{false, steps[first].step, steps[first].step};
  }
  return stall;
}

// Whether the learning rate changes by other factors at the end than before, as it does where it falls to zero: then what is lost
// leaves its trend as well.
bool rate_bends(std::span<const UpdateStep> steps) {
  const auto rate = [&](size_t i) { return std::log(steps[i].learning_rate); };
  const double first = rate(steps.size() / 2) - rate(0), second = rate(steps.size() - 1) - rate(steps.size() / 2);
  if (std::isnan(steps.front().learning_rate) || first == second) return false;
  return !(second / first >= 0.5 && second / first <= 2);
}

// Theil and Sen's line through the logits of the shares of blocks, and the bounds of its slope at a confidence of 99%.
std::optional<Stall> extrapolated_stall(std::span<const UpdateStep> steps) {
  const std::span<const UpdateStep> later = steps.subspan(steps.size() / 2);
  constexpr uint64_t kLargestExact = uint64_t{1} << 52;  // steps and their means are numbers of FP64 up to here
  if (later.size() < kBlocks || later.back().step > kLargestExact || rate_bends(later)) return std::nullopt;
  std::vector<Point> points;
  for (const std::span<const UpdateStep> block : blocks_of(later, kBlocks)) {
    const LostUpdates updates = add_up(block);
    if (updates.nonzero == 0) return std::nullopt;
    const auto lost = static_cast<double>(updates.lost), kept = static_cast<double>(updates.nonzero - updates.lost);
    points.push_back({(static_cast<double>(block.front().step) + static_cast<double>(block.back().step)) / 2,
                      std::log((lost + 0.5) / (kept + 0.5))});
  }
  const std::vector<double> slopes = slopes_between(points);
  const double spread = kendall_bound(points.size()), count = static_cast<double>(slopes.size());
  const double least = slopes[static_cast<size_t>(std::floor((count - spread) / 2)) - 1],
               most = slopes[static_cast<size_t>(std::ceil((count + spread) / 2))];
  if (!(least > 0)) return std::nullopt;
  // A trend that levels off, or has only begun, is not a line.
  const double slope = median(slopes);
  const std::span<const Point> all(points);
  for (const std::span<const Point> half : {all.first(kBlocks / 2), all.last(kBlocks / 2)}) {
    const double of_half = median(slopes_between(half));
    if (!(of_half >= slope / 1.5 && of_half <= 1.5 * slope)) return std::nullopt;
  }
  // The line through the middle of the points; with the bounds of the slope it turns around that.
  std::vector<double> places, offsets;
  for (const Point& point : points) {
    places.push_back(point.x);
    offsets.push_back(point.y - slope * point.x);
  }
  const double middle = median(std::move(places)), share = median(std::move(offsets)) + slope * middle;
  const double rise = std::log(static_cast<double>(kStalledPercent) / (100 - kStalledPercent)) - share;
  const double from = middle + rise / most, to = middle + rise / least;
  const double last = static_cast<double>(steps.back().step), farthest = last + (last - static_cast<double>(later.front().step));
  if (!(std::ceil(to) > last && to <= farthest)) return std::nullopt;
  return Stall{true, static_cast<uint64_t>(std::max(std::floor(from), last + 1)), static_cast<uint64_t>(std::ceil(to))};
}

size_t tenth(size_t count) { return (count + 9) / 10; }

}  // namespace

std::optional<double> LostUpdates::share() const {
  if (nonzero == 0) return std::nullopt;
  return static_cast<double>(lost) / static_cast<double>(nonzero);
}

LostUpdates add_up(std::span<const UpdateStep> steps) {
  LostUpdates all;
  for (const UpdateStep& step : steps) {
    all.nonzero += step.nonzero;
    all.lost += step.lost;
  }
  return all;
}

std::span<const UpdateStep> first_tenth(std::span<const UpdateStep> steps) { return steps.first(tenth(steps.size())); }
std::span<const UpdateStep> last_tenth(std::span<const UpdateStep> steps) { return steps.last(tenth(steps.size())); }

std::vector<std::span<const UpdateStep>> blocks_of(std::span<const UpdateStep> steps, size_t most) {
  const size_t count = std::min(most, steps.size());
  std::vector<std::span<const UpdateStep>> blocks;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = steps.size() * i / count, end = steps.size() * (i + 1) / count;
    blocks.push_back(steps.subspan(begin, end - begin));
  }
  return blocks;
}

std::optional<double> median_ratio(std::span<const UpdateStep> steps) {
  std::vector<double> ratios;
  for (const UpdateStep& step : steps)
    if (step.weight_norm > 0 && std::isfinite(step.weight_norm) && std::isfinite(step.update_norm))
      ratios.push_back(step.update_norm / step.weight_norm);
  if (ratios.empty()) return std::nullopt;
  return median(std::move(ratios));
}

std::optional<Stall> find_stall(std::span<const UpdateStep> steps) {
  if (const auto stall = recorded_stall(steps)) return stall;
  return extrapolated_stall(steps);
}

}  // namespace ulpscope
