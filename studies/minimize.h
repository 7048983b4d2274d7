// The smallest part of a capsule that fails as the whole does: of its last step the fewest samples, layers and places of a sequence
// or image.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/core/observe/nonfinite_watch.h"
#include "ulpscope/studies/op_differences.h"

namespace ulpscope {

struct MinimizeOptions {
  std::string output;                                      // the smaller capsule
  std::string scratch;                                     // a file that it may write and leave, and with ".h5" behind it another
  double budget = 60;                                      // seconds
  size_t most_bytes = OpDifferences::kMostBytes;           // of what layers gave in the step; beyond it none is cut off
  std::function<bool(std::string_view trial)> watch = {};  // told of each that begins; false: neither it nor another one does
};

// How much of the run there is: of the whole capsule, and of what is left.
struct CapsuleSize {
  uint64_t steps = 0, batches = 0, samples = 0;  // batches and samples of the last step
  uint64_t layers = 0;                           // that compute, and have no others within them
  std::vector<int64_t> sample;                   // the shape of one, as the first layer that is left gets it
  uint64_t bytes = 0;                            // of the file
};

struct Minimized {
  NonfiniteOutput failure;   // the first output of the last step that was not finite: what it fails in
  std::string cause;         // as `ulpscope nan` has it
  bool is_harmless = false;  // as `ulpscope nan` has it: nothing but the likeness of what was not finite is kept then
  uint64_t step = 0;
  double loss = 0;  // of the last step, as the whole capsule has it
  CapsuleSize before, after;
  std::vector<int64_t> samples;  // that are left, by their numbers in the training data
  std::string replaced_up_to;    // the last layer of those that were cut off, for which stands what it gave; "": none
  // How the last step alone fails, where that is otherwise: steps before it stay then, and all of their samples and layers.
  std::string other_failure;
  uint64_t trials = 0;
  bool is_smallest = true;  // false: the time was up before nothing further could be left out
};

// A step fails in the same way where its first output that is not finite is that of the same op in the same module and phase, of
// the same parameter or of none, the cause is of the same class, and its loss is as finite, and it is as skipped. What is left is a
// capsule like any other, with an experiment, tensors and samples of its own: for the layers that are cut off at the beginning,
// what they gave in the whole step. Where the last step alone fails otherwise, as memory does that an earlier step had written,
// only steps are left out: what fails with some of them is taken to fail with more, so that halves are tried. Means keep their
// divisor: the loss is multiplied by the share of the targets that are left, which is not quite the share of those that count where
// it ignores labels. Throws Error: a capsule that cannot be read, or ends with a step that is finite when it is run again by
// itself.
Minimized minimize(const std::string& capsule, const MinimizeOptions& options);

Report report_of(const std::string& capsule, const std::string& output, const Minimized& minimized);

}  // namespace ulpscope
