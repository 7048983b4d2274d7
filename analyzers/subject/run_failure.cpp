#include "ulpscope/analyzers/subject/run_failure.h"

#include <cmath>

#include "ulpscope/analyzers/subject/step_facts.h"

namespace ulpscope {

void FailureWatch::add(uint64_t step, double loss, bool skipped) {
  last_ = step;
  bad_losses_ = std::isfinite(loss) ? 0 : bad_losses_ + 1;
  if (bad_losses_ == 1) first_bad_ = step;
  skips_ = skipped ? skips_ + 1 : 0;
  if (skips_ == 1) first_skipped_ = step;
  has_taken_ |= !skipped;
  skipped_ <<= 1;
  skipped_[0] = skipped && has_taken_;
}

unsigned FailureWatch::skipped_at_end() const {
  const auto count = static_cast<unsigned>(skipped_.count());
  return count >= StepTotals::kStuck ? count : 0;
}

std::optional<RunFailure> FailureWatch::failure(bool weights_are_finite) const {
  if (bad_losses_ > 0) return RunFailure{RunFailure::Way::loss, first_bad_, last_};
  if (skips_ >= kSkipped) return RunFailure{RunFailure::Way::skipped, first_skipped_, last_};
  if (!weights_are_finite) return RunFailure{RunFailure::Way::weights, last_, last_};
  return std::nullopt;
}

}  // namespace ulpscope
