#include "ulpscope/analyzers/subject/matrix_products.h"

#include <optional>
#include <span>

#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

// The shape of what an op reads as an input; of a view, that of the tensor which it shows.
std::span<const int64_t> shape_read(const AnalysisContext& context, uint32_t op, uint32_t input) {
  const std::span<const uint32_t> read = context.graph.tensors_read_by(op, input);
  if (read.empty()) return {};
  return context.selection.tensor(read.front()).shape;
}

// The trace says the shape of the product, or the shapes of its operands do. docs/ops.md says which operand is which of our own
// engine alone: in others the bias may come first.
std::optional<ProductShape> product_of(const AnalysisContext& context, const OpInfo& op, const TensorInfo& output) {
  if (const auto product = ProductShape::of(op.product)) return product;
  if (!is_of_own_engine(context.trace.run())) return std::nullopt;
  return product_shape(semantics_of(op.function).product, shape_read(context, output.op, 0), shape_read(context, output.op, 1),
                       output.shape);
}

}  // namespace

std::vector<MatrixProduct> forward_products(const AnalysisContext& context) {
  const Selection& selection = context.selection;
  std::vector<MatrixProduct> products;
  // An op's output is several tensors where runs that are read as one differ; the first counts.
  std::vector<bool> counted(context.trace.ops().size());
  for (uint32_t i = 0; i < selection.size(); ++i) {
    const TensorInfo& tensor = selection.tensor(i);
    const OpInfo& op = selection.op(i);
    const bool is_forward = op.phase == Phase::forward || op.phase == Phase::loss;
    if (!selection.contains(i) || !is_forward || tensor.slot != 0 || counted[tensor.op]) continue;
    counted[tensor.op] = true;
    if (const auto product = product_of(context, op, tensor)) products.push_back({i, *product});
  }
  return products;
}

double flop_of(const AnalysisContext& context, const MatrixProduct& product) {
  const TensorInfo& made = context.selection.tensor(product.tensor);
  if (context.selection.op(product.tensor).function != OpFunction::attention || made.shape.empty()) return product.shape.flop();
  ProductShape with_values = product.shape;
  with_values.k = product.shape.n;
  with_values.n = made.shape.back();
  return product.shape.flop() + with_values.flop();
}

}  // namespace ulpscope
