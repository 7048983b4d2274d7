// The kinds of data set, one function each. The table of dataset.cpp names them.
#pragma once

#include <string_view>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

// SourceInfo::part of data sets whose inputs and targets lie apart.
inline constexpr const char *kInputsPart = "inputs", *kTargetsPart = "targets";

// Samples that are the rows of a file, or of the data set `inside` it, from the first on.
inline SourceInfo source_in(const std::string& file, const std::string& inside = "") {
  SourceInfo source;
  source.file = file;
  source.inside = inside;
  return source;
}

DataSplits open_fashion_mnist(const DataSettings& settings, const DataUse& use);
DataSplits open_idx(const DataSettings& settings, const DataUse& use);
DataSplits open_hdf5(const DataSettings& settings, const DataUse& use);
DataSplits open_npy(const DataSettings& settings, const DataUse& use);
DataSplits open_csv(const DataSettings& settings, const DataUse& use);
DataSplits open_text(const DataSettings& settings, const DataUse& use);
DataSplits make_quantized_sine(const DataSettings& settings, const DataUse& use);
DataSplits make_random_classification(const DataSettings& settings, const DataUse& use);
DataSplits make_copy_task(const DataSettings& settings, const DataUse& use);
// Throws: a run has these from the capsule that it goes on from.
DataSplits open_capsule(const DataSettings& settings, const DataUse& use);

}  // namespace ulpscope
