#include "ulpscope/analyzers/subject/training_loss.h"

#include <algorithm>
#include <string_view>

#include "ulpscope/analyzers/subject/precision_facts.h"

namespace ulpscope {

std::vector<uint32_t> loss_ops(const AnalysisContext& context) {
  const std::vector<OpInfo>& ops = context.trace.ops();
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < ops.size(); ++i) {
    const bool is_of_training = ops[i].phase == Phase::forward || ops[i].phase == Phase::loss;
    const std::span<const uint32_t> made = context.graph.made_by(i, 0);
    const auto is_loss = [&](uint32_t tensor) { return context.selection.tensor(tensor).role == Role::loss; };
    if (is_of_training && std::any_of(made.begin(), made.end(), is_loss)) found.push_back(i);
  }
  return found;
}

std::optional<uint32_t> mean_loss_op(const AnalysisContext& context, std::initializer_list<OpFunction> functions) {
  // A cast of the loss, and what its factor gives, are losses too, of the same values.
  std::vector<uint32_t> computed = loss_ops(context);
  std::erase_if(computed, [&](uint32_t i) {
    const OpFunction function = context.trace.ops()[i].function;
    return has_trait(function, kSameValues) || function == OpFunction::scale;
  });
  if (computed.size() != 1) return std::nullopt;
  const OpInfo& op = context.trace.ops()[computed.front()];
  const std::string_view reduction = attribute_text(op, "reduction");
  const bool is_one = std::find(functions.begin(), functions.end(), op.function) != functions.end();
  return is_one && (reduction.empty() || reduction == "mean") ? std::optional(computed.front()) : std::nullopt;
}

std::span<const uint32_t> tensors_read_as(const AnalysisContext& context, uint32_t op, Meaning meaning) {
  const auto input = input_of(context.trace.ops()[op].function, meaning);
  return input ? context.graph.tensors_read_by(op, *input) : std::span<const uint32_t>();
}

std::optional<uint32_t> backward_op_of(const AnalysisContext& context, uint32_t forward) {
  const std::vector<OpInfo>& ops = context.trace.ops();
  const auto backward = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& each) {
    return each.phase == Phase::backward && each.forward_id == ops[forward].id;
  });
  return backward == ops.end() ? std::nullopt : std::optional(static_cast<uint32_t>(backward - ops.begin()));
}

std::span<const uint32_t> sources_read_as(const AnalysisContext& context, uint32_t op, Meaning meaning) {
  std::span<const uint32_t> read = tensors_read_as(context, op, meaning);
  // Autocast casts once, and a producer may copy before: more in a row are no data.
  for (int casts = 0; casts < 4 && !read.empty(); ++casts) {
    const TensorInfo& tensor = context.selection.tensor(read.front());
    if (!has_trait(context.selection.op(read.front()).function, kSameValues)) break;
    read = context.graph.tensors_read_by(tensor.op, 0);
  }
  return read;
}

}  // namespace ulpscope
