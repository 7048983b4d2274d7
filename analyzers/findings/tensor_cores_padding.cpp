// Whether the 16-bit products of the run fit tensor cores: from the shapes in the tables of tensors and of the graph; no rows.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/product_shape.h"

namespace ulpscope::findings {

namespace {

constexpr Template kPaddingIn16Bits{"tensor_cores.padding.in_16_bits", "16 bits"};
constexpr Template kPaddingInFp8{"tensor_cores.padding.in_fp8", "FP8"};
constexpr Template kPadding{"tensor_cores.padding",
                            "{products:count product} in {types} {products:either has|have} extents that are no multiples of "
                            "{multiples}: what tensor cores pad them to makes the products of the forward pass {factor:.3g} "
                            "times the work."};
constexpr Template kTakeMultiples{"advice.take_multiples",
                                  "Numbers of features, channels and samples that are multiples of {multiple} use tensor "
                                  "cores in full."};
constexpr Template kNoOtherFp8Products{"advice.no_other_fp8_products",
                                       "cuBLASLt and Transformer Engine multiply no FP8 matrices with others."};

// The products of one op of a module that have one shape: those of a recurrent layer's steps, for instance.
struct Products {
  uint32_t tensor = 0;  // the first one's
  ProductShape shape;
  size_t count = 0;

  double flop() const { return static_cast<double>(count) * shape.flop(); }
};

// The shape of what an op reads as an input; of a view, that of the tensor which it shows.
std::span<const int64_t> shape_read(const AnalysisContext& context, uint32_t op, uint32_t input) {
  const GraphEdge* const edge = context.graph.read_by(op, input);
  if (edge == nullptr) return {};
  const std::span<const uint32_t> read = context.graph.made_by(edge->producer, edge->slot);
  if (read.empty()) return {};
  return context.selection.tensor(read.front()).shape;
}

ProductKind product_kind(OpFunction function) {
  switch (function) {
    case OpFunction::linear:
      return ProductKind::linear;
    case OpFunction::matmul:
    case OpFunction::scaled_matmul:
      return ProductKind::matmul;
    case OpFunction::convolution:
      return ProductKind::convolution;
    case OpFunction::transposed_convolution:
      return ProductKind::transposed_convolution;
    default:
      return ProductKind::none;
  }
}

// The trace says the shape of the product, or the shapes of its operands do. docs/ops.md says which operand is which of our own
// engine alone: in others the bias may come first.
std::optional<ProductShape> product_of(const AnalysisContext& context, const OpInfo& op, const TensorInfo& output) {
  if (const auto product = ProductShape::of(op.product)) return product;
  if (!is_of_own_engine(context.trace.run())) return std::nullopt;
  return product_shape(product_kind(op.function), shape_read(context, output.op, 0), shape_read(context, output.op, 1),
                       output.shape);
}

// How much more work the padding of extents that are no multiples is, and of which layers.
void find_padding(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  const Selection& selection = facts.selection;
  std::vector<Products> padded;
  std::map<std::tuple<std::string_view, std::string_view, ProductShape>, size_t> rows;  // of `padded`
  size_t count = 0;
  double work = 0, padded_work = 0;
  std::vector<bool> counted(
      context.trace.ops().size());  // an op's output is several tensors where runs read as one differ; the first counts
  for (uint32_t i = 0; i < selection.size(); ++i) {
    const TensorInfo& tensor = selection.tensor(i);
    const OpInfo& op = selection.op(i);
    if (!selection.contains(i) || op.phase != Phase::forward || tensor.slot != 0 || !is_narrow(tensor.dtype)) continue;
    if (counted[tensor.op]) continue;
    counted[tensor.op] = true;
    const auto product = product_of(context, op, tensor);
    if (!product) continue;
    // What an unknown K leaves out of one product would be missing in the share of all others.
    if (product->k != ProductShape::kUnknown) {
      work += product->flop();
      padded_work += product->flop() * product->padded_over_real();
    }
    if (product->is_aligned()) continue;
    const auto [row, is_new] = rows.try_emplace({op.module, op.name, *product}, padded.size());
    if (is_new) padded.push_back({i, *product});
    ++padded[row->second].count;
    ++count;
  }
  // Less than a hundredth more work is nothing to pad for.
  if (padded.empty() || (work > 0 && padded_work < 1.01 * work)) return;
  // The multiples that they miss, in order, and in which types.
  std::set<int64_t> missed;
  for (const Products& products : padded) missed.insert(products.shape.multiple);
  Value::List types, multiples;
  for (const int64_t multiple : missed) {
    types.push_back(multiple == multiple_for(e4m3) ? kPaddingInFp8() : kPaddingIn16Bits());
    multiples.push_back(ordinal(multiple));
  }
  Suspects suspects(selection);
  for (const Products& products : padded) {
    const bool known = products.shape.k != ProductShape::kUnknown;
    const double more = products.shape.padded_over_real();
    suspects.add(products.flop() * (more - 1), products.tensor,
                 {{"padding", products.shape.padding()},
                  {"padded_over_real_work", more, Unit::ratio},
                  {"share_of_products", known ? Cell(products.flop() / work) : Cell(Unknown{}), Unit::share},
                  {"products", count_cell(products.count), Unit::count}});
  }
  Sentences advice = kTakeMultiples({{"multiple", ordinal(*missed.rbegin())}});
  if (missed.contains(multiple_for(e4m3))) advice += kNoOtherFp8Products();
  found.add(Severity::info,
            kPadding({{"products", count},
                      {"types", Value::list(std::move(types))},
                      {"multiples", Value::list(std::move(multiples))},
                      {"factor", work > 0 ? padded_work / work : 1}}),
            suspects.worst(), std::move(advice));
}

}  // namespace

extern constinit const FindingRule tensor_cores_padding{
    .code = "tensor_cores.padding",
    .part = Part::tensor_cores,
    .raised = "Matrix products have extents that tensor cores pad.",
    .meaning = "The hardware multiplies by zeros.",
    .help = "Multiples of the extents that the finding names.",
    .is_about_run = false,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_padding,
};

}  // namespace ulpscope::findings
