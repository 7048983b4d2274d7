// How the learning rate goes on over a run: a factor for each step, which depends on nothing but the step and the number of steps,
// so that a resumed run has the same where that number is.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ulpscope {

enum class ScheduleType : uint8_t { constant, linear, cosine, step };
const char* name_of(ScheduleType type);
std::span<const std::string_view> keys_of(ScheduleType type);  // of Schedule's members, those that not all types take and this does

struct Schedule {
  ScheduleType type = ScheduleType::constant;
  int64_t warmup = 0;        // steps in which the factor first rises linearly: 1 / warmup, 2 / warmup, ..., 1
  double end_factor = 0;     // linear, cosine: what the factor reaches after the last step
  int64_t step_size = 1000;  // step: after so many steps each
  int64_t steps = 0;         // linear, cosine: of the whole schedule; 0: those of the run
  double gamma = 0.1;        // step: the factor is multiplied by it

  // Of step `step` (from 0) of a run of `total`; beyond the schedule's steps that of its end. After the warm-up, of which the other
  // steps know nothing: linear falls from 1 to end_factor, cosine as (1 + cos) / 2 between them, as PyTorch's LinearLR and
  // CosineAnnealingLR; step as its StepLR.
  double factor(uint64_t step, uint64_t total) const;

  bool operator==(const Schedule&) const = default;
};

}  // namespace ulpscope
