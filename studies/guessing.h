// What guessing gives: the loss of a model that answers alike whatever it is shown. Nothing that trains ends above it.
#pragma once

#include <optional>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/nn/layer.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// With loss.factor. `output`: the shape of one sample's. Of labels log(classes), and of probabilities log(2); of values what their
// mean (mse) or median (l1, huber) for all of them gives, over the first samples, at most 1024. Nothing: of kl_div, which depends
// on how sure the targets are.
std::optional<double> loss_of_guessing(const Experiment& experiment, const Dataset& data, const SampleShape& output);

}  // namespace ulpscope
