#include "ulpscope/analyzers/judgements/growth.h"

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

// Which results are more of a way, behind the last one that was found.
struct Way {
  Growth::Of of;
  bool (*leads)(const TensorInfo& from, const TensorInfo& to);
  bool (*counts)(const TensorInfo& result);
  bool (*goes_on)(double largest, double behind);
};

// Of several values of its kind.
bool is_sum(const AnalysisContext& context, const Way& kind, uint32_t tensor, uint32_t of) {
  const Selection& selection = context.selection;
  if (selection.op(tensor).function != OpFunction::add) return false;
  const std::span<const GraphEdge> inputs = context.trace.graph().inputs(selection.tensor(tensor).op);
  return std::count_if(inputs.begin(), inputs.end(), [&](const GraphEdge& edge) {
           const std::span<const uint32_t> made = context.graph.made_by(edge.producer, edge.slot);
           return std::any_of(made.begin(), made.end(),
                              [&](uint32_t each) { return kind.leads(selection.tensor(each), selection.tensor(of)); });
         }) > 1;
}

std::optional<Growth> follow(const Way& kind, const AnalysisContext& context, uint32_t tensor, const RowPosition& position) {
  const std::vector<double> largest = magnitudes(context, position);
  const Selection& selection = context.selection;
  std::vector<Growth::Result> way;  // from the last to the first
  const auto counts = [&](uint32_t here) {
    if (!kind.counts(selection.tensor(here))) return false;
    if (kind.of == Growth::Of::products) return selection.op(here).kind == OpKind::product;
    return is_sum(context, kind, here, tensor) &&
           (way.empty() || selection.op(way.back().tensor).module != selection.op(here).module);
  };
  for (uint32_t here = tensor;;) {
    if (counts(here) && largest[here] > 0) {
      if (!way.empty() && !kind.goes_on(largest[here], way.back().largest)) break;
      way.push_back({here, largest[here]});
    }
    const uint32_t op = selection.tensor(here).op;
    double most = 0;
    for (const GraphEdge& edge : context.trace.graph().inputs(op)) {
      if (!context.trace.graph().is_within_step(edge)) continue;
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
  return Growth{kind.of, std::move(way)};
}

}  // namespace

double Growth::per_result() const { return std::pow(factor(), 1.0 / static_cast<double>(results.size() - 1)); }

std::optional<Growth> growth_towards(const AnalysisContext& context, uint32_t tensor, const RowPosition& position, Growth::Of of) {
  const Way growing{.of = of,
                    .leads = leads_to_value,
                    .counts = [](const TensorInfo&) { return true; },
                    .goes_on = [](double largest, double behind) { return largest < behind; }};
  return follow(growing, context, tensor, position);
}

std::optional<Growth> fall_of_gradients(const AnalysisContext& context, uint32_t weight, const RowPosition& position) {
  constexpr Way kFalling{.of = Growth::Of::products,
                         .leads = leads_to_weight,
                         .counts = [](const TensorInfo& product) { return product.role == Role::activation_gradient; },
                         .goes_on = [](double largest, double behind) { return largest > behind; }};
  return follow(kFalling, context, weight, position);
}

}  // namespace ulpscope
