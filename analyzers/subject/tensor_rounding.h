// How the results of a tensor's op were rounded, and whether its type is a narrow one.
#pragma once

#include "ulpscope/emulation/number.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// As the op that made the tensor rounded its results, or would round them to `format`.
Rounding rounding_of(const TensorInfo& tensor, const FloatFormat& format);
// In the stored format.
Rounding rounding_of(const TensorInfo& tensor);

// True iff tensors of this type are made by a rounding into a narrower format.
bool is_narrow(DType dtype);
// True iff the type is narrow and not FP8, whose losses the quantization scale decides and not the loss scale.
bool is_plainly_narrow(DType dtype);
// The row holds the values of a narrow format as they are stored, not as they were before rounding.
bool is_stored(const TensorRow& row, const TensorInfo& tensor);

}  // namespace ulpscope
