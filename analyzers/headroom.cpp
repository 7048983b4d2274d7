#include "ulpscope/analyzers/headroom.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

namespace {

std::optional<double> trend(const std::vector<HeadroomHistory::Step>& steps) {
  constexpr size_t kFewest = 8;
  constexpr double kCertain = 2.576;  // of a normal variable, 1% lies outside of it on both sides
  const size_t n = steps.size();
  if (n < kFewest) return std::nullopt;
  std::vector<double> slopes;
  double concordant = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const double falls = steps[i].bits - steps[j].bits;
      slopes.push_back(falls / static_cast<double>(steps[j].step - steps[i].step));
      concordant += static_cast<double>((falls > 0) - (falls < 0));
    }
  }
  const double count = static_cast<double>(n);
  if (std::abs(concordant) < kCertain * std::sqrt(count * (count - 1) * (2 * count + 5) / 18)) return std::nullopt;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

}  // namespace

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
  for (auto step = steps.rbegin(); step != steps.rend() && step->bits < kLowHeadroom; ++step) history.low_since = step->step;
  if (steps.size() > most) steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(most));
  history.shrinks = trend(steps);
  return history;
}

}  // namespace ulpscope
