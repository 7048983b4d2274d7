#include "ulpscope/analyzers/judgements/captured_arithmetic.h"

#include <cmath>
#include <vector>

#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

bool is_known(const CaptureRow& operand) { return !operand.overwritten && operand.row.count == 0 && std::isfinite(operand.value); }

// The sum that a softmax divides by is at least 1, what its largest value adds.
std::optional<double> most_of_softmax(const std::vector<const CaptureRow*>& operands) {
  if (operands.size() != 2 || !is_known(*operands[0])) return std::nullopt;
  const CaptureRow::Row& row = operands[1]->row;
  if (row.count < 1 || row.nonfinite > 0) return std::nullopt;
  return std::exp(operands[0]->value - row.largest);
}

bool hands_on_zero(OpFunction function) {
  return function == OpFunction::cast || function == OpFunction::mul || function == OpFunction::scale ||
         function == OpFunction::div;
}

}  // namespace

std::optional<double> exact_result(OpFunction function, double x, double y) {
  switch (function) {
    case OpFunction::cast:
      return x;
    case OpFunction::add:
      return x + y;
    case OpFunction::sub:
      return x - y;
    case OpFunction::mul:
    case OpFunction::scale:
      return x * y;
    case OpFunction::div:
      return x / y;
    case OpFunction::reciprocal:
      return 1 / x;
    case OpFunction::exp:
      return std::exp(x);
    case OpFunction::pow:
      return std::pow(x, y);
    default:
      return std::nullopt;
  }
}

std::optional<FlushedElement> flushed_element_behind(const Selection& selection, const CaptureTree& capture,
                                                     const CaptureRow& zero) {
  const CaptureRow* node = &zero;
  while (node->value == 0 && node->made_by >= 0 && is_known(*node)) {
    const auto made = static_cast<uint32_t>(node->made_by);
    const TensorInfo& tensor = selection.tensor(made);
    const OpInfo& op = selection.op(made);
    const std::vector<const CaptureRow*> operands = capture.operands(*node);
    if (operands.empty() || operands.size() > 2 || !is_float(tensor.dtype)) return std::nullopt;
    const bool is_softmax = op.function == OpFunction::softmax;
    std::optional<double> exact;
    if (is_softmax) {
      exact = most_of_softmax(operands);
    } else {
      for (const CaptureRow* const operand : operands)
        if (!is_known(*operand)) return std::nullopt;
      const double y = operands.size() > 1 ? operands[1]->value : attribute(op, "factor").value_or(kUnknown);
      exact = exact_result(op.function, operands[0]->value, y);
    }
    if (!exact || std::isnan(*exact)) return std::nullopt;
    if (*exact != 0) {
      const double flushed = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed.perhaps_below;
      return std::abs(*exact) <= flushed ? std::optional(FlushedElement{node, std::abs(*exact), is_softmax, flushed})
                                         : std::nullopt;
    }
    if (!hands_on_zero(op.function)) return std::nullopt;
    const bool second = operands.size() > 1 && op.function == OpFunction::mul && operands[0]->value != 0;
    node = operands[second ? 1 : 0];
  }
  return std::nullopt;
}

}  // namespace ulpscope
