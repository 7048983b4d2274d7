// Constants of a run that mean something else in the formats which its arithmetic rounds them to: an eps that becomes zero, a share
// of an average that is as good as one; and sums in 16 bits of more terms than such a sum takes. Said before the first step, by
// rounding them as the updates do (kernels/updates.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/core/engine/arithmetic.h"
#include "ulpscope/core/optim/optimizer.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// A sentence for each, with what it becomes. `optimizers`: the experiment's, in its order, with their learning rates before any
// schedule, the largest that they have. `arithmetic`: nullptr where it is the default.
std::vector<std::string> changed_constants(const Experiment& experiment, std::span<const std::unique_ptr<Optimizer>> optimizers,
                                           ArithmeticRules* arithmetic);

}  // namespace ulpscope
