// The kinds of data set, one function each; open_data chooses.
#pragma once

#include <string_view>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

DataSplits open_fashion_mnist(const DataSettings& settings);
DataSplits open_idx(const DataSettings& settings);
DataSplits make_quantized_sine(const DataSettings& settings);
DataSplits make_random_classification(const DataSettings& settings, uint64_t seed);

}  // namespace ulpscope
