#include "ulpscope/core/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ulpscope {

namespace {

struct ScheduleRow {
  const char* name;
  // After the warm-up: `step` of `total` steps.
  double (*factor)(const Schedule& schedule, double step, double total);
  std::span<const std::string_view> keys;
};
constexpr std::string_view kFallingKeys[] = {"end_factor", "steps"}, kStepKeys[] = {"step_size", "gamma"};
// In the order of ScheduleType.
constexpr ScheduleRow kSchedules[] = {
    {"constant", [](const Schedule&, double, double) { return 1.0; }, {}},
    {"linear", [](const Schedule& s, double step, double total) { return 1 + (s.end_factor - 1) * std::min(step / total, 1.0); },
     kFallingKeys},
    {"cosine",
     [](const Schedule& s, double step, double total) {
       return s.end_factor + (1 - s.end_factor) * (1 + std::cos(std::numbers::pi * std::min(step / total, 1.0))) / 2;
     },
     kFallingKeys},
    {"step",
     [](const Schedule& s, double step, double) { return std::pow(s.gamma, std::floor(step / static_cast<double>(s.step_size))); },
     kStepKeys},
};

const ScheduleRow& row_of(ScheduleType type) { return kSchedules[static_cast<size_t>(type)]; }

}  // namespace

const char* name_of(ScheduleType type) { return row_of(type).name; }
std::span<const std::string_view> keys_of(ScheduleType type) { return row_of(type).keys; }

double Schedule::factor(uint64_t step, uint64_t total) const {
  const auto at = static_cast<double>(step), rise = static_cast<double>(warmup);
  if (at < rise) return (at + 1) / rise;
  const double fall = std::max(1.0, (steps > 0 ? static_cast<double>(steps) : static_cast<double>(total)) - rise);
  return row_of(type).factor(*this, at - rise, fall);
}

}  // namespace ulpscope
