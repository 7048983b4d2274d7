// Plain twins of statistics.h: simple loops over rounding.h that give the same bits, for tests and to read.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/tensor_statistics.h"

namespace ulpscope {

TensorStatistics reference_statistics(const float* values, int64_t count);
TensorStatistics reference_statistics(const double* values, int64_t count);

// What rounding `values`, which contain the loss scale `scale`, to `format` does.
RoundingCounts reference_rounding(const FloatFormat& format, const float* values, int64_t count, double scale);
RoundingCounts reference_rounding(const FloatFormat& format, const double* values, int64_t count, double scale);

}  // namespace ulpscope
