// The kinds of data set, one function each. The table of dataset.cpp names them.
#pragma once

#include <string_view>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

DataSplits open_fashion_mnist(const DataSettings& settings, const DataUse& use);
DataSplits open_idx(const DataSettings& settings, const DataUse& use);
DataSplits open_hdf5(const DataSettings& settings, const DataUse& use);
DataSplits open_npy(const DataSettings& settings, const DataUse& use);
DataSplits open_csv(const DataSettings& settings, const DataUse& use);
DataSplits open_text(const DataSettings& settings, const DataUse& use);
DataSplits make_quantized_sine(const DataSettings& settings, const DataUse& use);
DataSplits make_random_classification(const DataSettings& settings, const DataUse& use);
DataSplits make_copy_task(const DataSettings& settings, const DataUse& use);

}  // namespace ulpscope
