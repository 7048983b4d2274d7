// What a training step does to gradients and parameters, in place.
#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

bool same_shape(const Tensor& a, const Tensor& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

void unscale_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(with_role(in_place_spec(arguments, 0), Role::unscaled_gradient));
  specs.push_back(with_name(with_role(in_place_spec(arguments, 1), Role::buffer), "found_inf"));
}

double unscaled_loss_scale(std::span<const Tensor> inputs, const Attributes& attributes) {
  return inputs[0].body()->loss_scale / attributes["loss_scale"];
}

void clip_norm_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(with_role(in_place_spec(arguments, 0), Role::unscaled_gradient));
}

void accumulate_shape(const OpArguments& arguments, OutputSpecs& specs) {
  if (!same_shape(arguments.inputs[0], arguments.inputs[1])) wrong_shape(arguments, "two tensors of one shape");
  specs.push_back(with_role(in_place_spec(arguments, 0), Role::accumulated_gradient));
}

void assign_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& to = arguments.inputs[0];
  if (!same_shape(to, arguments.inputs[1])) wrong_shape(arguments, "two tensors of one shape");
  specs.push_back(with_role(in_place_spec(arguments, 0), weight_role(to.dtype())));
}

constexpr std::string_view kSgdState[] = {"momentum_buffer"}, kAdamState[] = {"exp_avg", "exp_avg_sq"}, kLionState[] = {"exp_avg"};

// The weight and its state in place, and the update d, of which only the record is kept.
void update_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& weight = arguments.inputs[0];
  const std::span<const std::string_view> states = update_states(arguments.op);
  for (const Tensor& input : arguments.inputs)
    if (!same_shape(weight, input) || input.dtype() != weight.dtype())
      wrong_shape(arguments, "weight, gradient and state of one shape and type");
  specs.push_back(with_role(in_place_spec(arguments, 0), weight_role(weight.dtype())));
  for (size_t i = 2; i < arguments.inputs.size(); ++i)
    specs.push_back(with_name(with_role(in_place_spec(arguments, static_cast<int>(i)), Role::optimizer_state), states[i - 2]));
  // d is not stored, so a 16-bit weight's is wide.
  OutputSpec update = with_role(make_spec(wide_type(weight.dtype()), weight.shape()), Role::update);
  update.record_only = true;
  update.name = "update";
  specs.push_back(update);
}

const Op kTraining[] = {
    {.name = "accumulate", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = accumulate_shape},
    {.name = "assign", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = assign_shape},
    {.name = "unscale",
     .inputs = 2,
     .autocast = AutocastClass::exempt,
     .shape_rule = unscale_shape,
     .loss_scale = unscaled_loss_scale,
     .needs_attributes = true},
    {.name = "clip_norm", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = clip_norm_shape, .needs_attributes = true},
    {.name = "sgd_update",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::exempt,
     .shape_rule = update_shape,
     .needs_attributes = true},
    {.name = "lion_update", .inputs = 3, .autocast = AutocastClass::exempt, .shape_rule = update_shape, .needs_attributes = true},
    {.name = "adam_update", .inputs = 4, .autocast = AutocastClass::exempt, .shape_rule = update_shape, .needs_attributes = true},
};

}  // namespace

std::span<const Op> training_ops() { return kTraining; }

std::span<const std::string_view> update_states(const Op& update) {
  switch (update.function) {
    case OpFunction::sgd_update:
      return kSgdState;
    case OpFunction::adam_update:
      return kAdamState;
    case OpFunction::lion_update:
      return kLionState;
    default:
      return {};
  }
}

}  // namespace ulpscope
