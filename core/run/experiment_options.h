// The tables of keys of an experiment file.
#pragma once

#include <vector>

#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/settings/option.h"

namespace ulpscope {

// All keys but model.layers, optimizers, and the free names under autocast.ops, autocast.modules, arithmetic.ops and
// arithmetic.modules, in the order in which they are documented and written; keys without a dot come first.
const std::vector<Option<Experiment>>& experiment_options();
// nullptr where there is none.
const Option<Experiment>* find_option(std::string_view key);

// The keys of `arithmetic`, arithmetic.ops.NAME and arithmetic.modules.NAME.
const std::vector<Option<ArithmeticChange>>& arithmetic_options();

// Values of autocast.ops.NAME, autocast.modules.NAME and a layer's dtype.
const OptionType& precision_type();
Precision find_precision(std::string_view name);

}  // namespace ulpscope
