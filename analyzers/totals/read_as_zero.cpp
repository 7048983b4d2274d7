#include "ulpscope/analyzers/totals/read_as_zero.h"

#include <algorithm>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

ReadAsZero::ReadAsZero(const AnalysisContext& context, const FloatFormat* what_if) {
  const std::vector<TensorInfo>& tensors = context.trace.tensors();
  for (const TracePart& part : context.parts) {
    // By op: whether it reads subnormals as zero, and whether it would read those of FP16 and BF16 so.
    std::vector<bool> flushing(context.trace.ops().size()), flushing_narrow(flushing.size());
    bool any = false;
    for (const uint32_t i : part.tensors) {
      const TensorInfo& tensor = tensors[i];
      if (tensor.flushes_inputs) flushing[tensor.op] = true;
      if (tensor.flushes_narrow_products) flushing_narrow[tensor.op] = true;
      any = any || tensor.flushes_inputs || tensor.flushes_narrow_products;
    }
    std::vector<bool>& read = by_part_.emplace_back(tensors.size());
    if (!any) continue;
    for (const GraphEdge& edge : context.trace.edges()) {
      if (edge.consumer >= flushing.size()) continue;
      for (const uint32_t i : context.graph.made_by(edge.producer, edge.slot)) {
        const FloatFormat* const format =
            is_computed_gradient(tensors[i].role) && what_if ? what_if : info(tensors[i].dtype).format;
        const bool is_half = format == &binary16 || format == &bfloat16;
        if (flushing[edge.consumer] || (is_half && flushing_narrow[edge.consumer])) read[i] = true;
      }
    }
  }
}

const FloatFormat* format_to_ask(const Snapshot& reader) {
  const bool rounded = std::any_of(reader.tensors().begin(), reader.tensors().end(), [](const TensorInfo& tensor) {
    return is_computed_gradient(tensor.role) && is_plainly_narrow(tensor.dtype);
  });
  return rounded ? nullptr : &binary16;
}

}  // namespace ulpscope
