// The kinds of data set, one function each. The table of dataset.cpp names them.
#pragma once

#include <string_view>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

DataSplits open_fashion_mnist(const DataSettings& settings, uint64_t seed);
DataSplits open_idx(const DataSettings& settings, uint64_t seed);
DataSplits open_hdf5(const DataSettings& settings, uint64_t seed);
DataSplits open_npy(const DataSettings& settings, uint64_t seed);
DataSplits open_csv(const DataSettings& settings, uint64_t seed);
DataSplits open_text(const DataSettings& settings, uint64_t seed);
DataSplits make_quantized_sine(const DataSettings& settings, uint64_t seed);
DataSplits make_random_classification(const DataSettings& settings, uint64_t seed);
DataSplits make_copy_task(const DataSettings& settings, uint64_t seed);

}  // namespace ulpscope
