// From an experiment and its model to the optimizers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ulpscope/core/engine/arithmetic.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// That of [optimizer] first, unless others have all parameters. Throws Error (usage) for one that has none.
std::vector<std::unique_ptr<Optimizer>> build_optimizers(const Experiment& experiment, const Model& model);
// Where every operation of an update is rounded, it is rounded by the update's own rule. Throws Error (usage) for another one.
void check_updates(std::span<const std::unique_ptr<Optimizer>> optimizers, ArithmeticRules& arithmetic);
// An update that rounds after every operation takes the learning rate in the parameter's type, where PyTorch's SGD refuses one that
// is too large. Adam's is FP32, and a first step of that size makes the weight infinite.
// Throws Error (usage).
void check_learning_rates(std::span<const std::unique_ptr<Optimizer>> optimizers);

}  // namespace ulpscope
