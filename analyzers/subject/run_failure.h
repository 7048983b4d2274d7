// When a run has failed, from its steps.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>

namespace ulpscope {

// A run has failed where to its end every loss is not finite or every step is skipped, or where a weight is not finite.
struct RunFailure {
  enum class Way : uint8_t { loss, skipped, weights };
  Way way = Way::loss;
  // The first of those steps; of weights, from which on they were not finite, or where that is not known the last.
  uint64_t step = 0;
  uint64_t last = 0;  // of the run

  // The same failure. Of weights when it began is not known of every run, and one that goes on behind it may lose its loss as well.
  // A run that is given up as lost ends before the other one's last bad losses begin.
  bool is_like(const RunFailure& other) const {
    if (way == Way::loss && other.way == Way::loss && last < other.step) return true;
    if (other.way != Way::weights) return way == other.way && step == other.step;
    return way == Way::weights || (way == Way::loss && step > other.step);
  }
};

// Takes the steps of a run in order.
class FailureWatch {
 public:
  // So many skipped at the end are a failure: a scale that comes down to where it fits takes fewer.
  static constexpr uint64_t kSkipped = 20;
  static constexpr unsigned kLast = 20;

  void add(uint64_t step, double loss, bool skipped);
  std::optional<RunFailure> failure(bool weights_are_finite = true) const;  // nothing: it did not fail
  // Of the last kLast steps, or those since the first that was taken, so many were skipped that they were not trained in: at least
  // kStuck of them. Else 0.
  unsigned skipped_at_end() const;
  // So long that it is not going to recover.
  bool is_lost() const { return bad_losses_ >= kSkipped || skips_ >= 2 * kSkipped; }

 private:
  uint64_t last_ = 0, bad_losses_ = 0, skips_ = 0;
  uint64_t first_bad_ = 0, first_skipped_ = 0;
  bool has_taken_ = false;
  std::bitset<kLast> skipped_;  // of the last steps, the last one first; a search for a scale before the first taken is none
};

}  // namespace ulpscope
