#include "ulpscope/analyzers/subject/tensor_rounding.h"

#include "ulpscope/emulation/format.h"

namespace ulpscope {

Rounding rounding_of(const TensorInfo& tensor, const FloatFormat& format) {
  const bool is_half = &format == &binary16 || &format == &bfloat16;
  const bool flushes = tensor.flushes_results || (tensor.flushes_narrow_products && tensor.slot == 0 && is_half);
  return {.mode = tensor.rounding, .subnormals = flushes ? SubnormalResults::flush : SubnormalResults::keep};
}

Rounding rounding_of(const TensorInfo& tensor) { return rounding_of(tensor, *info(tensor.dtype).format); }

bool is_narrow(DType dtype) { return is_float(dtype) && is_narrow(*info(dtype).format); }
bool is_plainly_narrow(DType dtype) { return is_narrow(dtype) && !is_quantized(dtype); }
bool is_stored(const TensorRow& row, const TensorInfo& tensor) { return !row.before_rounding && is_narrow(tensor.dtype); }

}  // namespace ulpscope
