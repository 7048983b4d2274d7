// Whether the 16-bit products of the run fit tensor cores: from the shapes in the tables of tensors and of the graph; no rows.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/matrix_products.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/product_shape.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kPadding{"tensor_cores.padding",
                            "{products} {formats} {products:either matmul has|matmuls have} dimensions that are not multiples of "
                            "{multiples}."};
constexpr Template kPaddingOfConvolutions{
    "tensor_cores.padding.convolutions",
    "{products} {formats} {products:either convolution has|convolutions have} dimensions that are "
    "not multiples of {multiples}."};
constexpr Template kPaddingOfBoth{"tensor_cores.padding.both",
                                  "{products} {formats} matmuls and convolutions have dimensions that are not multiples of "
                                  "{multiples}."};
constexpr Template kPaddingCosts{"tensor_cores.padding.costs",
                                 "Padding {products:either it|them} for tensor cores costs {factor:.3g}x the forward pass's matmul "
                                 "FLOPs."};
constexpr Template kTakeMultiples{"advice.take_multiples",
                                  "Use feature, channel and batch sizes that are multiples of {multiple}."};
constexpr Template kFp8NeedsMultiples{"advice.fp8_needs_multiples", "cuBLASLt and Transformer Engine require that of FP8 matmuls."};

// The products of one op of a module that have one shape: those of a recurrent layer's steps, for instance.
struct Products {
  uint32_t tensor = 0;  // the first one's
  ProductShape shape;
  size_t count = 0;

  double flop() const { return static_cast<double>(count) * shape.flop(); }
};

bool is_convolution(OpFunction function) {
  const ProductKind kind = semantics_of(function).product;
  return kind == ProductKind::convolution || kind == ProductKind::transposed_convolution;
}

// How much more work the padding of dimensions is that are not multiples, and of which layers.
void find_padding(const RunFacts& facts, Findings& found) {
  const Selection& selection = facts.selection;
  std::vector<Products> padded;
  std::map<std::tuple<std::string_view, std::string_view, ProductShape>, size_t> rows;  // of `padded`
  size_t count = 0;
  double work = 0, padded_work = 0;
  for (const auto& [i, product] : forward_products(facts.context)) {
    const OpInfo& op = selection.op(i);
    if (op.phase != Phase::forward || !is_narrow(selection.tensor(i).dtype)) continue;
    // What an unknown K leaves out of one product would be missing in the share of all others.
    if (product.k != ProductShape::kUnknown) {
      work += product.flop();
      padded_work += product.flop() * product.padded_over_real();
    }
    if (product.is_aligned()) continue;
    const auto [row, is_new] = rows.try_emplace({op.module, op.name, product}, padded.size());
    if (is_new) padded.push_back({i, product});
    ++padded[row->second].count;
    ++count;
  }
  // Less than a hundredth more work is nothing to pad for.
  if (padded.empty() || (work > 0 && padded_work < 1.01 * work)) return;
  // The multiples that they miss, in order, and in which formats.
  std::set<int64_t> missed;
  std::set<std::pair<int64_t, std::string>> formats;
  bool multiplies = false, convolves = false;
  for (const Products& products : padded) {
    const int64_t multiple = products.shape.multiple;
    missed.insert(multiple);
    formats.emplace(
        multiple, multiple == multiple_for(e4m3) ? "FP8" : format_name(*info(selection.tensor(products.tensor).dtype).format).text);
    (is_convolution(selection.op(products.tensor).function) ? convolves : multiplies) = true;
  }
  Value::List names, multiples;
  for (const auto& [unused, name] : formats) names.push_back(Name{NameKind::format, name});
  for (const int64_t multiple : missed) multiples.push_back(ordinal(multiple));
  Suspects suspects(selection);
  for (const Products& products : padded) {
    const bool known = products.shape.k != ProductShape::kUnknown;
    const double more = products.shape.padded_over_real();
    suspects.add(products.flop() * (more - 1), products.tensor,
                 {{"padding", products.shape.padding()},
                  {"padded_over_real_work", more, Unit::ratio},
                  {"share_of_products", known ? Cell(products.flop() / work) : Cell(Unknown{}), Unit::share},
                  {"products", count_cell(products.count)}});
  }
  Sentences advice = kTakeMultiples({{"multiple", ordinal(*missed.rbegin())}});
  if (missed.contains(multiple_for(e4m3))) advice += kFp8NeedsMultiples();
  const Template& kind = !convolves ? kPadding : !multiplies ? kPaddingOfConvolutions : kPaddingOfBoth;
  Sentences title =
      kind({{"products", count}, {"formats", Value::list(std::move(names))}, {"multiples", Value::list(std::move(multiples))}});
  if (work > 0) title += kPaddingCosts({{"products", count}, {"factor", padded_work / work}});
  found.add(Severity::info, std::move(title), suspects.worst(), std::move(advice));
}

}  // namespace

extern constinit const FindingRule tensor_cores_padding{
    .code = "tensor_cores.padding",
    .part = Part::tensor_cores,
    .raised = "Matmuls or convolutions in 16 bits or FP8 have dimensions that tensor cores pad.",
    .meaning = "The hardware multiplies zeros.",
    .help = "Use sizes that are multiples of the number that the finding names.",
    .is_about_run = false,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_padding,
};

}  // namespace ulpscope::findings
