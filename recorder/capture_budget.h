// Which origins are captured: so many in a step, and of one output, with the same kinds of values, more and more seldom.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

// A harmless infinity, one that comes in every step, is not to use up the capture of a fatal one.
class CaptureBudget {
 public:
  void begin_step() { captures_ = repeated_ = 0; }
  // Whether an output with these counts, an origin, is captured. Asked once for each.
  bool take(uint32_t tensor, const OutputRecord& record) {
    const HealthCounts& counts = record.statistics.health();
    const bool overflowed = record.before_rounding && record.rounding_known && record.rounding.infinite() > 0;
    const uint64_t kinds = (counts.nan > 0 ? 1 : 0) | (counts.positive_infinity > 0 ? 2 : 0) |
                           (counts.negative_infinity > 0 ? 4 : 0) | (overflowed ? 8 : 0);
    Seen& seen = seen_[uint64_t{tensor} << 4 | kinds];
    ++seen.times;
    if (captures_ == kInStep || (seen.captured && repeated_ == kRepeatedInStep)) return false;
    if (seen.times > kAlways && (seen.times & (seen.times - 1)) != 0) return false;
    ++captures_;
    repeated_ += seen.captured;
    return seen.captured = true;
  }

 private:
  static constexpr int kInStep = 8, kRepeatedInStep = 4;
  static constexpr uint64_t kAlways = 16;

  struct Seen {
    uint64_t times = 0;  // that it was an origin
    bool captured = false;
  };
  int captures_ = 0, repeated_ = 0;          // in this step
  std::unordered_map<uint64_t, Seen> seen_;  // by tensor and kinds of values
};

}  // namespace ulpscope
