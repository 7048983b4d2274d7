#include "ulpscope/analyzers/report/value_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ulpscope/analyzers/report/text.h"

namespace ulpscope {

namespace {

constexpr double kLogarithmicFrom = 1000;  // the highest value over the lowest

// Powers of `base` between the two, a whole number of them apart.
std::vector<double> powers(double base, double lowest, double highest, size_t most) {
  const double low = std::log2(lowest) / std::log2(base), high = std::log2(highest) / std::log2(base);
  const double distance = std::max(1.0, std::ceil((high - low) / static_cast<double>(std::max<size_t>(1, most))));
  std::vector<double> values;
  for (double e = std::ceil(low - 1e-9); e <= high + 1e-9; e += distance) values.push_back(std::pow(base, e));
  return values;
}

std::vector<double> ticks_of(const ValueScale& scale, Unit unit, size_t most) {
  if (scale.is_logarithmic) return powers(unit == Unit::scale ? 2 : 10, scale.lowest, scale.highest, most);
  // Bytes are round in powers of 1024.
  const double in = unit == Unit::bytes && scale.highest >= 1 ? std::pow(1024.0, std::floor(std::log2(scale.highest) / 10)) : 1.0;
  const bool is_whole = unit == Unit::exponent || unit == Unit::count;
  std::vector<double> values;
  // One number alone would not tell how far it is to another.
  for (size_t count = std::max<size_t>(1, most); values.size() < 2 && count <= most + 4; ++count) {
    values = round_numbers(scale.lowest / in, scale.highest / in, count, is_whole);
    for (double& value : values) value *= in;
    std::erase_if(values, [&](double value) { return !(value >= scale.lowest && value <= scale.highest); });
  }
  return values;
}

}  // namespace

double ValueScale::place(double value) const {
  const auto scaled = [&](double y) { return is_logarithmic ? std::log2(y) : y; };
  // A range may be wider than numbers are: halves of it are not.
  return (scaled(value) / 2 - scaled(lowest) / 2) / (scaled(highest) / 2 - scaled(lowest) / 2);
}

ValueScale value_scale(const Plot& plot, size_t most_series, double first, double end, size_t most_ticks) {
  ValueScale scale;
  double lowest = INFINITY, highest = -INFINITY;
  for (const Series& series : std::span(plot.series).first(std::min(plot.series.size(), most_series))) {
    for (size_t i = 0; i < series.points(); ++i) {
      if (!std::isfinite(series.x[i]) || series.x[i] >= end || plot.end_of(series, i) <= first) continue;
      if (!std::isfinite(series.y[i])) {
        scale.has_nonfinite = true;
        continue;
      }
      lowest = std::min(lowest, series.y[i]);
      highest = std::max(highest, series.y[i]);
    }
  }
  if (lowest > highest) return scale;
  scale.is_empty = false;
  const Unit unit = plot.y.unit;
  const bool is_constant = lowest == highest;
  const bool is_of_powers = unit == Unit::scale && !is_constant;  // which double and halve
  scale.is_logarithmic =
      unit != Unit::exponent && unit != Unit::share && lowest > 0 && (is_of_powers || highest / lowest >= kLogarithmicFrom);
  const bool begins_at_zero = unit == Unit::share || unit == Unit::count || unit == Unit::bytes || unit == Unit::seconds;
  scale.lowest = begins_at_zero && !scale.is_logarithmic ? std::min(lowest, 0.0) : lowest;
  scale.highest = highest;
  if (scale.lowest == scale.highest) {
    const double around = std::max(std::fabs(lowest) / 10, unit == Unit::exponent ? 1.0 : 1e-30);
    scale.highest += around;
    scale.lowest -= begins_at_zero ? 0 : around;
  }
  scale.ticks = is_constant ? std::vector{lowest} : ticks_of(scale, unit, most_ticks);
  if (scale.ticks.empty()) scale.ticks = {lowest, highest};
  return scale;
}

std::vector<double> round_numbers(double from, double to, size_t count, bool is_whole) {
  std::vector<double> numbers;
  if (!(to > from) || !std::isfinite(to - from)) {
    if (std::isfinite(from)) numbers.push_back(from);
    return numbers;
  }
  const double raw = (to - from) / static_cast<double>(count), power = std::pow(10.0, std::floor(std::log10(raw)));
  double distance = 10 * power;
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= raw) {
      distance = step * power;
      break;
    }
  }
  if (is_whole) distance = std::max(1.0, std::round(distance));
  // Of large numbers a distance may be too small to be added to one.
  const double begin = std::ceil(from / distance - 1e-9);
  for (size_t i = 0; i < 4 * count && (begin + static_cast<double>(i)) * distance <= to + distance * 1e-9; ++i)
    numbers.push_back((begin + static_cast<double>(i)) * distance);
  return numbers;
}

std::string axis_text(double value, Unit unit) {
  return unit == Unit::share && value > 0 && value < 1e-3 ? fmt::format("{:.2g}%", 100 * value) : cell_text(value, unit);
}

}  // namespace ulpscope
