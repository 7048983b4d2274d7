#include "ulpscope/analyzers/totals/headroom.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

std::optional<double> shrinks_by(const std::vector<HeadroomHistory::Step>& steps) {
  constexpr size_t kFewest = 8;
  if (steps.size() < kFewest) return std::nullopt;
  std::vector<Point> points;
  for (const HeadroomHistory::Step& step : steps) points.push_back({static_cast<double>(step.step), -step.bits});
  const std::vector<double> slopes = slopes_between(points);
  double order = 0;
  for (const double slope : slopes) order += static_cast<double>((slope > 0) - (slope < 0));
  if (std::abs(order) < kendall_bound(points.size())) return std::nullopt;
  return median(slopes);
}

}  // namespace

std::optional<double> HeadroomHistory::before(uint64_t step, uint64_t back) const {
  if (back > step) return std::nullopt;
  const auto later =
      std::upper_bound(steps.begin(), steps.end(), step - back, [](uint64_t at, const Step& one) { return at < one.step; });
  return later == steps.begin() ? std::nullopt : std::optional(std::prev(later)->bits);
}

HeadroomHistory headroom_before(const Snapshot& trace, uint32_t tensor, const RowPosition& position, size_t most) {
  HeadroomHistory history;
  const DType dtype = trace.tensors()[tensor].dtype;
  if (!is_float(dtype)) return history;
  const FloatFormat& format = *info(dtype).format;
  trace.of_rank(position.rank).visit_history(tensor, {0, position.step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (position_of(row, position.rank) >= position || row.known < StatisticsLevel::values || row.statistics.largest == 0)
        continue;
      const double bits = headroom(format, row.statistics.largest);
      if (!history.steps.empty() && history.steps.back().step == row.step)
        history.steps.back().bits = std::min(history.steps.back().bits, bits);
      else
        history.steps.push_back({row.step, bits});
    }
    return true;
  });
  std::vector<HeadroomHistory::Step>& steps = history.steps;
  if (!steps.empty() && steps.back().step == position.step) {
    history.last = steps.back();
    steps.pop_back();
    if (history.last->bits < kLowHeadroom) history.low_since = position.step;
  }
  const bool ends_low = !history.last || history.low_since;
  if (ends_low)
    for (auto step = steps.rbegin(); step != steps.rend() && step->bits < kLowHeadroom; ++step) history.low_since = step->step;
  if (steps.size() > most) steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(most));
  history.shrinks = shrinks_by(steps);
  return history;
}

}  // namespace ulpscope
