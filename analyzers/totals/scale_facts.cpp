#include "ulpscope/analyzers/totals/scale_facts.h"

#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

void GradientLosses::append(const GradientLosses& later) {
  flushed.append(later.flushed);
  rows_without_values += later.rows_without_values;
  saturated = saturated || later.saturated;
  saturated_above_100000 = saturated_above_100000 || later.saturated_above_100000;
}

void ScaleFacts::update(const Block& block) {
  GradientLosses& losses = losses_.at(block.rank, block.step);
  // What was flushed in a step that was skipped or fitted is lost to nobody.
  const bool is_used = !block.step.skipped && !context_->is_fitted(block.step);
  for (const TensorRow& row : block.rows) {
    if (!context_->selection.contains(row)) continue;
    const TensorInfo& tensor = context_->selection.tensor(row.tensor);
    losses.rows_without_values += is_computed_gradient(tensor.role) && row.known == StatisticsLevel::health;
    if (!is_gradient(tensor.role) || !is_narrow(tensor.dtype)) continue;
    const auto rounding = as_seen(row);
    if (!rounding) continue;
    GradientLosses::Flushed* const flushed = is_used ? &losses.flushed[row.tensor] : nullptr;
    if (flushed) flushed->seen += *rounding;
    if (is_quantized(tensor.dtype)) continue;
    losses.saturated = losses.saturated || row.rounding.saturated > 0;
    losses.saturated_above_100000 = losses.saturated_above_100000 || (row.rounding.saturated > 0 && row.scale > 100000);
    if (flushed) flushed->loss.add(row, *info(tensor.dtype).format, rounding_of(tensor));
  }
}

}  // namespace ulpscope
