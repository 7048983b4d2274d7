// The tables of keys of an experiment file.
#pragma once

#include <vector>

#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/settings/option.h"

namespace ulpscope {

// All keys but model.layers and the free names under autocast.ops and autocast.modules, in the order in which they are documented
// and written; keys without a dot come first.
const std::vector<Option<Experiment>>& experiment_options();

// Values of autocast.ops.NAME and autocast.modules.NAME.
const OptionType& precision_type();
Precision find_precision(std::string_view name);

}  // namespace ulpscope
