// The smallest part of a capsule that fails as the whole does: its last step alone, and of that step's batches the fewest samples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/core/observe/nonfinite_watch.h"

namespace ulpscope {

struct MinimizeOptions {
  std::string output;                                      // the smaller capsule
  std::string scratch;                                     // a file that it may write and leave
  double budget = 60;                                      // seconds
  std::function<bool(std::string_view trial)> watch = {};  // told of each that begins; false: neither it nor another one does
};

// How much of the run there is: of the whole capsule, and of what is left.
struct CapsuleSize {
  uint64_t steps = 0, batches = 0, samples = 0;  // batches and samples of the last step
  uint64_t bytes = 0;                            // of the file
};

struct Minimized {
  NonfiniteOutput failure;  // the first output of the last step that was not finite: what it fails in
  uint64_t step = 0;
  double loss = 0;  // of the last step, as the whole capsule has it
  CapsuleSize before, after;
  std::vector<int64_t> samples;  // that are left, by their numbers in the training data
  uint64_t trials = 0;
  bool is_smallest = true;  // false: the time was up before no further sample could be left out
};

// A step fails in the same way where its first output that is not finite is that of the same op in the same module and phase, and
// its loss is as finite, and it is as skipped. Means keep their divisor: the loss is multiplied by the share of the samples that
// are left, which is not quite the share of those that count where it ignores labels. Throws Error: a capsule that cannot be read,
// ends with a step in which all was finite, or does not fail when it is run again.
Minimized minimize(const std::string& capsule, const MinimizeOptions& options);

Report report_of(const std::string& capsule, const std::string& output, const Minimized& minimized);

}  // namespace ulpscope
