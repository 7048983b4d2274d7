// From an experiment to its model.
#pragma once

#include <memory>

#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// The model of an experiment for its data, without tensors yet. Throws Error (usage) where a layer does not fit what comes in, the
// output or the loss does not fit the targets, or a name or pattern of autocast, arithmetic and recording matches no module or op.
std::unique_ptr<Model> build_model(const Experiment& experiment, const Dataset& dataset);

// Writes the kind that the precision gives attention into each layer that leaves it open, so that another precision changes types
// alone, and not which ops there are.
void keep_attention(Experiment& experiment);

}  // namespace ulpscope
