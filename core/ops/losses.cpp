// Losses: FP32 under autocast.
#include <algorithm>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

void cross_entropy_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& logits = arguments.inputs[0];
  const Tensor& target = arguments.inputs[1];
  if (logits.rank() != 2 || target.rank() != 1 || target.shape(0) != logits.shape(0) || target.dtype() != DType::i64)
    wrong_shape(arguments, "logits [N, C] and i64 targets [N]");
  specs.push_back(with_role(make_spec(wide_type(logits.dtype()), {}), Role::loss));
  specs.push_back(with_name(make_spec(wide_type(logits.dtype()), target.shape()), "logsumexp"));
}

void cross_entropy_backward(BackwardCall& b) {
  b.set(0, call("cross_entropy_backward", {b.gradient(), b.input(0), b.input(1), b.output(1)}, b.attributes(),
                {.hints = b.into({0})}));
}

void nll_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &target = arguments.inputs[1];
  if (x.rank() != 2 || target.rank() != 1 || target.shape(0) != x.shape(0) || target.dtype() != DType::i64)
    wrong_shape(arguments, "log-probabilities [N, C] and i64 targets [N]");
  specs.push_back(with_role(make_spec(wide_type(x.dtype()), {}), Role::loss));
}

void nll_backward(BackwardCall& b) {
  const Tensor& x = b.input_like(0);
  Attributes attributes = b.attributes();
  attributes.set("classes", static_cast<double>(x.shape(1)));
  b.set(0, call("nll_backward", {b.gradient(), b.input(1)}, attributes, {.dtype = x.dtype(), .hints = b.into({0})}));
}

void nll_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const int64_t shape[] = {arguments.inputs[1].shape(0), static_cast<int64_t>(arguments.attributes["classes"])};
  specs.push_back(make_spec(arguments.dtype.value_or(arguments.inputs[0].dtype()), shape));
}

void by_element_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& prediction = arguments.inputs[0];
  const Tensor& target = arguments.inputs[1];
  if (!std::equal(prediction.shape().begin(), prediction.shape().end(), target.shape().begin(), target.shape().end()))
    wrong_shape(arguments, "prediction and target of one shape");
  specs.push_back(with_role(make_spec(wide_type(prediction.dtype()), {}), Role::loss));
}

// By NAME_backward, an elementwise op that gets what the sum of terms was multiplied by.
Tensor by_element_gradient(BackwardCall& b) {
  Attributes attributes({}, {{"factor", 1.0 / static_cast<double>(b.input_like(0).size())}});
  for (const Attributes::Item& item : b.attributes().items()) attributes.set(item.name, item.value);
  return call(std::string(b.op().name) + "_backward", {b.gradient(), b.input(0), b.input(1)}, attributes, {.hints = b.into({0})});
}

// Of a function of the difference of its inputs.
void difference_backward(BackwardCall& b) {
  const Tensor gradient = by_element_gradient(b);
  b.set(0, gradient);
  if (b.needs(1)) b.set(1, call("neg", {gradient}, {}, {.hints = b.into({1})}));
}

void prediction_backward(BackwardCall& b) {
  if (b.needs(1)) throw usage_error("{}: the target has no gradient; expected a detached one", b.op().name);
  b.set(0, by_element_gradient(b));
}

// `flops`: of an element's term, the sum included.
template <int flops>
Op by_element(std::string_view name, void (*backward)(BackwardCall&), bool needs_attributes = false) {
  return {.name = name,
          .inputs = 2,
          .autocast = AutocastClass::loss,
          .shape_rule = by_element_shape,
          .backward = backward,
          .needs_attributes = needs_attributes,
          .saves_inputs = 0b11,
          .flops = flops_per_element<flops, 0>};
}

Op forbidden(Op op, std::string_view because) {
  op.autocast = AutocastClass::forbidden;
  op.forbidden_because = because;
  return op;
}

const Op kLosses[] = {
    {.name = "cross_entropy",
     .inputs = 2,
     .autocast = AutocastClass::loss,
     .shape_rule = cross_entropy_shape,
     .backward = cross_entropy_backward,
     .saves_inputs = 0b11,
     .saves_outputs = 0b10,
     .flops = flops_per_element<4, 0>},
    {.name = "cross_entropy_backward",
     .inputs = 4,
     .autocast = AutocastClass::exempt,
     .shape_rule = like_input<1>,
     .flops = flops_per_element<3, 1>},
    {.name = "nll",
     .inputs = 2,
     .autocast = AutocastClass::loss,
     .shape_rule = nll_shape,
     .backward = nll_backward,
     .saves_inputs = 0b10,
     .flops = flops_per_element<1, 1>},
    {.name = "nll_backward",
     .inputs = 2,
     .autocast = AutocastClass::exempt,
     .shape_rule = nll_backward_shape,
     .needs_attributes = true,
     .flops = flops_per_element<1, 1>},
    by_element<3>("mse", difference_backward),
    by_element<2>("l1", difference_backward),
    by_element<5>("huber", difference_backward, true),
    by_element<7>("bce_with_logits", prediction_backward),
    forbidden(
        by_element<10>("binary_cross_entropy", prediction_backward),
        "log of a probability that the lower precision rounded to 0 or 1 is lost; expected bce_with_logits of what came before the "
        "sigmoid, or a module or op that autocast leaves in FP32"),
    by_element<5>("kl_div", prediction_backward),
};

}  // namespace

std::span<const Op> loss_ops() { return kLosses; }

Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing, int64_t ignore_index) {
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    throw usage_error("cross_entropy: expected a label_smoothing from 0 to 1, got {}", label_smoothing);
  Attributes attributes;
  if (label_smoothing != 0) attributes.set("label_smoothing", label_smoothing);
  if (ignore_index != kIgnoredTarget) attributes.set("ignore_index", static_cast<double>(ignore_index));
  return call("cross_entropy", {logits, target}, attributes);
}

Tensor nll(const Tensor& x, const Tensor& target, int64_t ignore_index) {
  Attributes attributes;
  if (ignore_index != kIgnoredTarget) attributes.set("ignore_index", static_cast<double>(ignore_index));
  return call("nll", {x, target}, attributes);
}

Tensor mse(const Tensor& prediction, const Tensor& target) { return call("mse", {prediction, target}); }
Tensor l1(const Tensor& prediction, const Tensor& target) { return call("l1", {prediction, target}); }
Tensor huber(const Tensor& prediction, const Tensor& target, double delta) {
  if (!(delta > 0)) throw usage_error("huber: expected a delta above 0, got {}", delta);
  return call("huber", {prediction, target}, {{"delta", delta}});
}
Tensor bce_with_logits(const Tensor& logits, const Tensor& target) { return call("bce_with_logits", {logits, target}); }
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target) {
  return call("binary_cross_entropy", {probability, target});
}
Tensor kl_div(const Tensor& log_probability, const Tensor& target) { return call("kl_div", {log_probability, target}); }

}  // namespace ulpscope
