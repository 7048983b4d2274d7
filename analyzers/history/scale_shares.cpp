#include "ulpscope/analyzers/history/scale_shares.h"

#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/totals/what_if_facts.h"

namespace ulpscope {

Table scale_shares(const AnalysisContext& context, uint32_t tensor, const FloatFormat& format, const StepRange& steps) {
  Table table{"scales",
              fmt::format("Rounded to {}", format.name),
              {{"scale", ColumnKind::number, Unit::scale},
               {"flushed", ColumnKind::number, Unit::share},
               {"subnormal", ColumnKind::number, Unit::share},
               {"overflow", ColumnKind::number, Unit::share}},
              {},
              0,
              ""};
  const TensorInfo& info = context.selection.tensor(tensor);
  if (!contains_loss_scale(info, context.selection.op(tensor))) {
    table.note = "No loss scale changes it: its values do not contain one.";
    return table;
  }
  auto question = std::make_shared<SweepQuestion>();
  question->formats = {&format};
  for (int k = kLeastScale; k <= kLargestScale; ++k) question->exponents.push_back(k);
  SweptRows swept;
  context.trace.visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) swept.add(row, info, question);
    return !context.options.cancelled();
  });
  if (swept.rows() == 0) {
    table.note = "Not known: no values of it were recorded.";
    return table;
  }
  const std::vector<SweepAnswer> answers = swept.answers();
  for (size_t i = 0; i < answers.size(); ++i) {
    const RoundingBounds& bounds = answers[i].bounds;
    table.rows.push_back({context.selection.key(tensor),
                          {std::ldexp(1.0, question->exponents[i]), share_cell(bounds.flushed, bounds.base),
                           share_cell(bounds.subnormal, bounds.base), share_cell(bounds.overflowed, bounds.base)}});
  }
  return table;
}

}  // namespace ulpscope
