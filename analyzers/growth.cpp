#include "ulpscope/analyzers/growth.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

namespace {

// The largest finite magnitude of each tensor in one pass of a step; NaN where it is not known.
std::vector<double> magnitudes(const AnalysisContext& context, const RowPosition& position) {
  std::vector<double> largest(context.selection.size(), kUnknown);
  for (size_t part = 0; part < context.parts.size(); ++part) {
    if (context.parts[part].run.rank != position.rank) continue;
    context.trace.of_part(part).visit_rows_without_histograms(
        {position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
          for (const TensorRow& row : rows) {
            if (row.micro_batch != position.micro_batch || row.loss_index != position.loss_index) continue;
            if (row.known == StatisticsLevel::values && row.statistics.nonfinite() == 0)
              largest[row.tensor] = row.statistics.largest / row.quantization_scale;
          }
          return true;
        });
  }
  return largest;
}

// Gradients come from gradients, and other values from others: neither from what the optimizer or the start of the run left.
bool leads_to_value(const TensorInfo& from, const TensorInfo& to) {
  if (is_computed_gradient(to.role)) return is_computed_gradient(from.role);
  return from.role == Role::activation || from.role == Role::input;
}

bool leads_to_weight(const TensorInfo& from, const TensorInfo&) { return is_gradient(from.role); }

// Whatever product's result is one more of a way, behind the last one that was found.
struct Way {
  bool (*leads)(const TensorInfo& from, const TensorInfo& to);
  bool (*counts)(const TensorInfo& product);
  bool (*goes_on)(double largest, double behind);
};

std::optional<Growth> follow(const Way& kind, const AnalysisContext& context, uint32_t tensor, const RowPosition& position) {
  const std::vector<double> largest = magnitudes(context, position);
  const Selection& selection = context.selection;
  std::vector<Growth::Product> way;  // from the last to the first
  for (uint32_t here = tensor;;) {
    if (selection.op(here).kind == OpKind::product && kind.counts(selection.tensor(here)) && largest[here] > 0) {
      if (!way.empty() && !kind.goes_on(largest[here], way.back().largest)) break;
      way.push_back({here, largest[here]});
    }
    const uint32_t op = selection.tensor(here).op;
    double most = 0;
    for (const GraphEdge& edge : context.trace.graph().inputs(op)) {
      // The table has the ops in the order in which they first ran.
      if (edge.producer >= op) continue;
      for (const uint32_t made : context.graph.made_by(edge.producer, edge.slot)) {
        if (!kind.leads(selection.tensor(made), selection.tensor(tensor)) || !(largest[made] > most)) continue;
        most = largest[made];
        here = made;
      }
    }
    if (most == 0) break;
  }
  if (way.size() < 2) return std::nullopt;
  std::reverse(way.begin(), way.end());
  return Growth{std::move(way)};
}

}  // namespace

double Growth::per_product() const { return std::pow(factor(), 1.0 / static_cast<double>(products.size() - 1)); }

std::optional<Growth> growth_towards(const AnalysisContext& context, uint32_t tensor, const RowPosition& position) {
  constexpr Way kGrowing{.leads = leads_to_value,
                         .counts = [](const TensorInfo&) { return true; },
                         .goes_on = [](double largest, double behind) { return largest < behind; }};
  return follow(kGrowing, context, tensor, position);
}

std::optional<Growth> fall_of_gradients(const AnalysisContext& context, uint32_t weight, const RowPosition& position) {
  constexpr Way kFalling{.leads = leads_to_weight,
                         .counts = [](const TensorInfo& product) { return product.role == Role::activation_gradient; },
                         .goes_on = [](double largest, double behind) { return largest > behind; }};
  return follow(kFalling, context, weight, position);
}

}  // namespace ulpscope
