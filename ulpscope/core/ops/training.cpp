// What a training step does to gradients and parameters, in place.
#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

bool same_shape(const Tensor& a, const Tensor& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

void unscale_shape(const OpArguments& arguments, OutputSpecs& specs) {
  for (int i = 0; i < 2; ++i) specs.push_back(in_place_spec(arguments.inputs[static_cast<size_t>(i)], i));
}

void first_in_place(const OpArguments& arguments, OutputSpecs& specs) { specs.push_back(in_place_spec(arguments.inputs[0], 0)); }

void accumulate_shape(const OpArguments& arguments, OutputSpecs& specs) {
  if (!same_shape(arguments.inputs[0], arguments.inputs[1])) wrong_shape(arguments, "two tensors of one shape");
  first_in_place(arguments, specs);
}

// The weight and its state in place, and the update d, of which only the record is kept.
void update_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& weight = arguments.inputs[0];
  for (const Tensor& input : arguments.inputs)
    if (!same_shape(weight, input) || input.dtype() != weight.dtype())
      wrong_shape(arguments, "weight, gradient and state of one shape and type");
  specs.push_back(in_place_spec(weight, 0));
  for (size_t i = 2; i < arguments.inputs.size(); ++i) specs.push_back(in_place_spec(arguments.inputs[i], static_cast<int>(i)));
  OutputSpec update = make_spec(weight.dtype(), weight.shape());
  update.record_only = true;
  specs.push_back(update);
}

const Op kTraining[] = {
    {.name = "accumulate", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = accumulate_shape},
    {.name = "unscale", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = unscale_shape, .needs_attributes = true},
    {.name = "clip_norm", .inputs = 2, .autocast = AutocastClass::exempt, .shape_rule = first_in_place, .needs_attributes = true},
    {.name = "sgd_update",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::exempt,
     .shape_rule = update_shape,
     .needs_attributes = true},
    {.name = "adam_update", .inputs = 4, .autocast = AutocastClass::exempt, .shape_rule = update_shape, .needs_attributes = true},
};

}  // namespace

std::span<const Op> training_ops() { return kTraining; }

}  // namespace ulpscope
