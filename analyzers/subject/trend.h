// Medians, and trends that a few odd values do not turn (docs/numerics.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ulpscope {

// Of at least one value; of an even number, the mean of the two in the middle. One that is NaN counts as infinite.
double median(std::vector<double> values);

struct Point {
  double x, y;
};
// Between each two of the points, whose x differ, ascending: the median is Theil and Sen's slope.
std::vector<double> slopes_between(std::span<const Point> points);

// Kendall's S of so many points, the rising pairs less the falling ones, stays within this at 99% where their order is chance.
double kendall_bound(size_t points);

// Mann and Whitney's U of the two, turned into standard deviations from where it stands when both come of one distribution:
// positive where `later` are larger. Both at least one value; equal ones count half, and one that is NaN as infinite.
double rank_sum_deviations(std::span<const double> earlier, std::span<const double> later);

}  // namespace ulpscope
