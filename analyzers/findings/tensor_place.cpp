#include "ulpscope/analyzers/findings/tensor_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientOfParameter{"tensor.gradient_of_parameter", "the gradient of `{parameter}`"};
constexpr Template kGradientOfModule{"tensor.gradient_of_module", "the gradient of `{module}` ({op})"};
constexpr Template kGradientOfOp{"tensor.gradient_of_op", "the gradient of `{op}`"};
constexpr Template kParameterItself{"tensor.parameter", "`{parameter}`"};
constexpr Template kOpOfModule{"tensor.op_of_module", "`{module}` ({op})"};
constexpr Template kTopLevelOp{"tensor.op", "`{op}`"};
constexpr Template kNamedTensor{"tensor.tensor", "`{tensor}`"};
constexpr Template kThatInEvaluation{"tensor.in_evaluation", "{place} in evaluation"};
constexpr Template kFormatMaximum{"format.maximum", "{format} {largest}"};

bool take_end(std::string_view& name, std::string_view end) {
  if (name.size() <= end.size() || !name.ends_with(end)) return false;
  name.remove_suffix(end.size());
  return true;
}

// The op that is called so by its module and its own name.
const OpInfo* named_op(const Snapshot& trace, std::string_view name) {
  const auto found = std::find_if(trace.ops().begin(), trace.ops().end(), [&](const OpInfo& op) {
    return op.module.empty() ? op.name == name : name == fmt::format("{} {}", op.module, op.name);
  });
  return found == trace.ops().end() ? nullptr : &*found;
}

std::vector<const FloatFormat*> distinct_formats(const RunFacts& facts, std::span<const uint32_t> tensors) {
  std::vector<const FloatFormat*> formats;
  for (const uint32_t i : tensors) {
    const FloatFormat* const format = info(facts.selection.tensor(i).dtype).format;
    if (format != nullptr && std::find(formats.begin(), formats.end(), format) == formats.end()) formats.push_back(format);
  }
  return formats;
}

}  // namespace

Sentence tensor_place(const RunFacts& facts, uint32_t tensor) {
  const TensorInfo& described = facts.selection.tensor(tensor);
  std::string_view name = facts.selection.name(tensor);
  const std::string type = fmt::format(" ({})", type_text(described.dtype));
  take_end(name, type);
  const bool in_evaluation = take_end(name, " in evaluation");
  take_end(name, type);
  const std::string without_type(name);
  const bool is_gradient_of_it = take_end(name, " gradient");
  Sentence place;
  if (const std::string& parameter = described.parameter; !parameter.empty() && name == parameter) {
    place = (is_gradient_of_it ? kGradientOfParameter : kParameterItself)({{"parameter", Name{NameKind::parameter, parameter}}});
  } else if (const OpInfo* const op = named_op(facts.context.trace, name)) {
    const Name op_name{NameKind::op, op->name};
    if (op->module.empty())
      place = (is_gradient_of_it ? kGradientOfOp : kTopLevelOp)({{"op", op_name}});
    else
      place =
          (is_gradient_of_it ? kGradientOfModule : kOpOfModule)({{"module", Name{NameKind::module, op->module}}, {"op", op_name}});
  } else {
    place = kNamedTensor({{"tensor", Name{NameKind::tensor, without_type}}});
  }
  return in_evaluation ? kThatInEvaluation({{"place", place}}) : place;
}

Value formats_of(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Value::List names;
  for (const FloatFormat* const format : distinct_formats(facts, tensors)) names.push_back(format_name(*format));
  return Value::list(std::move(names));
}

Value maxima_of(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Value::List maxima;
  for (const FloatFormat* const format : distinct_formats(facts, tensors))
    maxima.push_back(kFormatMaximum({{"format", format_name(*format)}, {"largest", format->largest_finite()}}));
  return Value::list(std::move(maxima));
}

Value rounding_modes(const RunFacts& facts, std::span<const uint32_t> tensors) {
  std::vector<RoundingMode> modes;
  for (const uint32_t i : tensors)
    if (const RoundingMode mode = facts.selection.tensor(i).rounding; std::find(modes.begin(), modes.end(), mode) == modes.end())
      modes.push_back(mode);
  Value::List names;
  for (const RoundingMode mode : modes) names.push_back(Name{NameKind::value, std::string(name_of(mode))});
  return Value::list(std::move(names));
}

}  // namespace ulpscope::findings
