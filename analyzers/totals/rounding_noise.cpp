#include "ulpscope/analyzers/totals/rounding_noise.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

// Gradients of biases are sums over the elements of the gradient that the op reads first.
RoundingNoise::RoundingNoise(const AnalysisContext& context)
    : context_(&context), terms_of_(context.selection.size()), terms_(context.selection.size()) {
  const Selection& selection = context.selection;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    const TensorInfo& tensor = selection.tensor(i);
    if (tensor.role != Role::weight_gradient) continue;
    const OpInfo& op = selection.op(i);
    const bool sums_convolution = op.kind == OpKind::product && makes_as(op.function, tensor.slot, Meaning::bias_gradient);
    if (op.function != OpFunction::sum && !sums_convolution) continue;
    const std::span<const uint32_t> terms = context.graph.tensors_read_by(tensor.op, 0);
    if (terms.empty() || !is_float(selection.tensor(terms.front()).dtype)) continue;
    terms_of_[i] = terms.front();
    terms_[terms.front()].wanted = true;
  }
}

void RoundingNoise::see(const TensorRow& row) {
  Terms& terms = terms_[row.tensor];
  if (!terms.wanted || row.known == StatisticsLevel::none) return;
  terms.step_number = step_number_;
  terms.count = static_cast<double>(row.statistics.count);
  terms.squares = row.known == StatisticsLevel::values ? row.statistics.sum_of_squares : kUnknown;
}

bool RoundingNoise::fills(const TensorRow& row) const {
  if (!terms_of_[row.tensor] || row.known != StatisticsLevel::values || row.statistics.count == 0) return false;
  const uint32_t summed = *terms_of_[row.tensor];
  const Terms& terms = terms_[summed];
  if (terms.step_number != step_number_) return false;
  const double k = terms.count / static_cast<double>(row.statistics.count), u = std::ldexp(1.0, -24);
  if (k * u >= 1) return false;  // the bound says nothing
  const double of_term = std::ldexp(0.5, -info(context_->selection.tensor(summed).dtype).format->fraction_bits);
  return row.statistics.largest <= (of_term + k * u / (1 - k * u)) * std::sqrt(k * terms.squares);
}

}  // namespace ulpscope
