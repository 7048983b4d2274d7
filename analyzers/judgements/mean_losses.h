// With which losses two runs ended, and whether one run each can tell that they differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

struct ComparedRuns;

// The mean losses of the last common steps: of the later half of those that are kept.
struct MeanLosses {
  static constexpr double kErrors = 2, kResolved = 0.05;  // what a difference has to exceed: of its error, and of the first mean

  size_t steps = 0;
  double a = 0, b = 0;
  double error = 0;  // of their difference, from how the losses vary

  // A smaller difference is not told from chance by one run each.
  double limit() const { return std::max(kErrors * error, kResolved * std::fabs(a)); }
  bool is_higher() const { return b - a > limit(); }
  // A phrase: ", -0.2%", by how much the second mean is higher; nothing where the first is 0.
  Sentence change() const;
};

// Of runs that have enough of them.
MeanLosses mean_losses(const ComparedRuns& runs);

}  // namespace ulpscope
