#include "ulpscope/analyzers/tensor_core_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ulpscope/analyzers/what_if.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/product_shape.h"

namespace ulpscope {

namespace {

constexpr size_t kMostEvidence = 5;

struct PaddedProduct {
  uint32_t tensor = 0;
  ProductShape shape;
};

// The shapes of the tensors that ops made, and which of them an op reads. An op reads what a view shows of a tensor as that tensor.
class Shapes {
 public:
  explicit Shapes(const TraceReader& reader) : reader_(reader) {
    const std::vector<TensorInfo>& tensors = reader.tensors();
    for (uint32_t i = 0; i < tensors.size(); ++i) outputs_.emplace(std::pair(tensors[i].op, tensors[i].slot), i);
    for (const GraphEdge& edge : reader.edges())
      inputs_.emplace(std::pair(edge.consumer, edge.input), std::pair(edge.producer, edge.slot));
  }
  std::span<const int64_t> of_input(uint32_t op, uint8_t input) const {
    const auto edge = inputs_.find({op, input});
    if (edge == inputs_.end()) return {};
    const auto tensor = outputs_.find(edge->second);
    if (tensor == outputs_.end()) return {};
    return reader_.tensors()[tensor->second].shape;
  }

 private:
  using Output = std::pair<uint32_t, uint8_t>;  // op and slot
  const TraceReader& reader_;
  std::map<Output, uint32_t> outputs_;
  std::map<Output, Output> inputs_;
};

}  // namespace

void add_tensor_core_findings(const TraceReader& reader, const Selection& selection, Report& report) {
  const Shapes shapes(reader);
  std::vector<PaddedProduct> padded;
  double work = 0, padded_work = 0;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    const TensorInfo& tensor = selection.tensor(i);
    const OpInfo& op = selection.op(i);
    if (!selection.contains(i) || op.phase != Phase::forward || tensor.slot != 0 || !is_narrow(tensor.dtype)) continue;
    const auto product = product_shape(op.name, shapes.of_input(tensor.op, 0), shapes.of_input(tensor.op, 1), tensor.shape);
    if (!product) continue;
    // What an unknown K leaves out of one product would be missing in the share of all others.
    if (product->k > 0) {
      work += product->flop();
      padded_work += product->flop() * product->padded_over_real();
    }
    if (!product->is_aligned()) padded.push_back({i, *product});
  }
  if (padded.empty()) return;
  const auto more = [](const PaddedProduct& product) { return product.shape.flop() * (product.shape.padded_over_real() - 1); };
  std::stable_sort(padded.begin(), padded.end(), [&](const auto& a, const auto& b) { return more(a) > more(b); });
  Finding finding{
      "tensor_cores.padding",
      Severity::info,
      fmt::format("{} in 16 bits {} extents that are no multiples of 8: what tensor cores pad them to makes the products of the "
                  "forward pass {:.3g} times the work.",
                  count_of(padded.size(), "product"), padded.size() == 1 ? "has" : "have", work > 0 ? padded_work / work : 1),
      {},
      "Numbers of features, channels and samples that are multiples of 8 use tensor cores in full."};
  for (const PaddedProduct& product : padded) {
    if (finding.evidence.size() == kMostEvidence) break;
    finding.evidence.push_back(
        {selection.key(product.tensor),
         {{"padding", product.shape.padding()},
          {"padded_over_real_work", product.shape.padded_over_real(), Unit::ratio},
          {"share_of_products", product.shape.k > 0 ? Cell(product.shape.flop() / work) : Cell(Unknown{}), Unit::share}}});
  }
  report.findings.push_back(std::move(finding));
}

}  // namespace ulpscope
