#include "ulpscope/kernels/product_arithmetic.h"

namespace ulpscope {

std::array<DType, 2> factor_types(const OpCall& call) {
  const DType a = call.inputs[0].dtype, b = call.inputs[1].dtype;
  if (a != b && !(is_quantized(a) && is_quantized(b))) return {DType::f32, DType::f32};
  return {a, b};
}

std::optional<AccumulatedProduct> accumulated_product(const OpCall& call) {
  if (call.arithmetic == nullptr || !is_product(call.op)) return std::nullopt;
  const Arithmetic& how = *call.arithmetic;
  const bool is_empty = call.inputs[0].size() == 0 || call.inputs[1].size() == 0 || call.outputs[0].size() == 0;
  if (how.accumulation->accumulator == Accumulator::fp32 || is_empty) return std::nullopt;
  AccumulatedProduct product{
      how.accumulation->accumulator, factor_types(call), call.op == "scaled_matmul", {}, how.accumulation->narrow};
  if (product.accumulator == Accumulator::tensor_core) {
    if (product.factors[0] == DType::f32 && !how.tf32) return std::nullopt;
    const auto multiplied = [](DType dtype) -> const FloatFormat& {
      return dtype == DType::f32 ? tensor_float32 : *info(dtype).format;
    };
    product.core = library_tensor_core(how.accumulation->name, multiplied(product.factors[0]), multiplied(product.factors[1]));
    if (!product.core) return std::nullopt;
  }
  return product;
}

}  // namespace ulpscope
