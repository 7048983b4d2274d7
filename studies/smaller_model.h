// Smaller models out of one: what is left of the layers keeps its paths, and so its parameters, the ids of its ops and their random
// numbers.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/core/run/experiment.h"

namespace ulpscope {

// A sequential gives way to its layers, under the names that their paths have in it, as often as it repeats them; one that
// checkpoints, or has a type of its own, stays.
std::vector<LayerSpec> flattened(std::span<const LayerSpec> layers);

// Those that compute, and have no others within them.
size_t count_computing(std::span<const LayerSpec> layers);

// The layers and those within them, in the order in which an experiment has them, but for the one at `place` and what it has
// within; nothing: there is none, or it is the only branch.
std::optional<std::vector<LayerSpec>> without(std::vector<LayerSpec> layers, size_t place);
size_t count_all(std::span<const LayerSpec> layers);

// Takes out what names modules and parameters that the experiment's model has no more: overrides, filters, optimizers and faults.
// `input`, `indices`: of its samples. Throws Error (usage) where the layers do not fit each other.
void fit_to_model(Experiment& experiment, const std::vector<int64_t>& input, int64_t indices);

}  // namespace ulpscope
