#include "ulpscope/analyzers/subject/trend.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

double median(std::vector<double> values) {
  for (double& value : values)
    if (std::isnan(value)) value = INFINITY;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return *std::max_element(values.begin(), middle) / 2 + *middle / 2;
}

std::vector<double> slopes_between(std::span<const Point> points) {
  std::vector<double> slopes;
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t j = i + 1; j < points.size(); ++j) slopes.push_back((points[j].y - points[i].y) / (points[j].x - points[i].x));
  std::sort(slopes.begin(), slopes.end());
  return slopes;
}

double kendall_bound(size_t points) {
  constexpr double kNormal = 2.5758293035489004;  // 99% of a normal distribution lie within so many standard deviations
  const auto n = static_cast<double>(points);
  return kNormal * std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
}

double rank_sum_deviations(std::span<const double> earlier, std::span<const double> later) {
  const auto value = [](double x) { return std::isnan(x) ? INFINITY : x; };
  double u = 0;
  for (const double a : earlier)
    for (const double b : later) u += value(b) > value(a) ? 1 : value(b) == value(a) ? 0.5 : 0;
  const auto n = static_cast<double>(earlier.size()), m = static_cast<double>(later.size());
  return (u - n * m / 2) / std::sqrt(n * m * (n + m + 1) / 12);
}

}  // namespace ulpscope
