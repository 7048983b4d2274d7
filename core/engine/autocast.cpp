#include "ulpscope/core/engine/autocast.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/context.h"

namespace ulpscope {

Autocast::Autocast(AutocastPolicy policy) : policy_(std::move(policy)) {
  if (policy_.dtype != DType::f16 && policy_.dtype != DType::bf16)
    throw usage_error("autocast: expected f16 or bf16, got {}", info(policy_.dtype).name);
  for (const auto& [name, ignored] : policy_.ops) {
    const Op& op = find_op(name);
    // Ops without a gradient are those of backward rules, which run in the types that the forward op chose, and those of
    // optimizers.
    if (op.autocast == AutocastClass::exempt || op.is_view || op.backward == nullptr)
      throw usage_error("autocast: '{}' takes its inputs as they are, so its type cannot be overridden", name);
  }
}

AutocastClass AutocastLists::of_class(AutocastClass own) const {
  switch (own) {
    case AutocastClass::input_type:
      return input_type;
    case AutocastClass::lower_precision:
      return lower_precision;
    case AutocastClass::fp32:
      return fp32;
    case AutocastClass::fp32_unless_dtype:
      return fp32_unless_dtype;
    case AutocastClass::loss:
      return loss;
    case AutocastClass::forbidden:
      return forbidden;
    case AutocastClass::exempt:
    case AutocastClass::inferred:
      break;
  }
  return own;
}

AutocastClass AutocastLists::class_of(const Op& op) const {
  const auto row = std::find_if(ops.begin(), ops.end(), [&](const Row& listed) { return listed.op == op.name; });
  return row == ops.end() ? of_class(op.autocast) : row->autocast;
}

std::optional<DType> Autocast::module_type() {
  const Context& context = ulpscope::context();
  if (policy_.modules.empty()) return context.layer_type;
  const auto [entry, added] = module_overrides_.try_emplace(context.module);
  if (added) {
    for (const auto& [pattern, dtype] : policy_.modules) {
      if (!glob_match(pattern, *context.module)) continue;
      entry->second = dtype;
      break;
    }
  }
  return entry->second ? entry->second : context.layer_type;
}

std::optional<DType> Autocast::input_type(const Op& op, std::span<const Tensor> inputs, std::optional<DType> asked) {
  if (const auto type = module_type()) return type;
  if (!policy_.ops.empty()) {
    const auto found = policy_.ops.find(op.name);
    if (found != policy_.ops.end()) return found->second;
  }
  switch (class_of(op)) {
    case AutocastClass::lower_precision:
      return policy_.dtype;
    case AutocastClass::fp32:
    case AutocastClass::loss:
      return DType::f32;
    case AutocastClass::fp32_unless_dtype:
      return asked.value_or(DType::f32);
    case AutocastClass::forbidden:
      throw usage_error("{}{}: forbidden under autocast, because {}", op.name, in_module(), op.forbidden_because);
    case AutocastClass::inferred:
      if (keeps_fp32(op, inputs)) return DType::f32;
      if (std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) { return input.dtype() == policy_.dtype; }))
        return policy_.dtype;
      return {};
    case AutocastClass::input_type:
    case AutocastClass::exempt:
      break;
  }
  return {};
}

bool Autocast::keeps_fp32(const Op& op, std::span<const Tensor> inputs) const {
  if (policy_.lists == nullptr) return false;  // nothing is inferred
  switch (class_of(op)) {
    case AutocastClass::lower_precision:
      return false;
    case AutocastClass::fp32:
    case AutocastClass::fp32_unless_dtype:
    case AutocastClass::loss:
    case AutocastClass::forbidden:
      return true;
    case AutocastClass::input_type:
    case AutocastClass::inferred:
    case AutocastClass::exempt:
      break;
  }
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.body()->kept_fp32; });
}

const Tensor* Autocast::cached_cast(const Tensor& parameter, DType dtype) const {
  const auto found = cache_.find(parameter.storage().serial());
  if (found == cache_.end()) return nullptr;
  const Cast& cast = found->second;
  // The version tells whether an optimizer changed the parameter since.
  // A cast made while gradients were off has no way back to the parameter.
  const bool usable = !context().grad_enabled || cast.cast.requires_grad() || !parameter.requires_grad();
  const bool fits =
      usable && cast.parameter.same_as(parameter) && cast.version == parameter.storage().version && cast.cast.dtype() == dtype;
  return fits ? &cast.cast : nullptr;
}

void Autocast::remember_cast(const Tensor& parameter, const Tensor& cast) {
  cache_.insert_or_assign(parameter.storage().serial(), Cast{parameter, parameter.storage().version, cast});
}

}  // namespace ulpscope
