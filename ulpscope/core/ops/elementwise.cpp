// Elementwise ops. An entry of the array below is the whole definition of one; its formula stands in kernels/formulas.h.
#include <algorithm>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// The shape that all inputs broadcast to, in the common type, laid out like the first input of that shape.
void broadcast_shape(const OpArguments& arguments, OutputSpecs& specs) {
  OutputSpec spec;
  spec.dtype = arguments.inputs[0].dtype();
  for (const Tensor& input : arguments.inputs) spec.rank = std::max(spec.rank, input.rank());
  std::fill_n(spec.shape.begin(), spec.rank, 1);
  for (const Tensor& input : arguments.inputs) {
    for (int i = 0; i < input.rank(); ++i) {
      int64_t& extent = spec.shape[spec.rank - input.rank() + i];
      if (extent == 1) {
        extent = input.shape(i);
      } else if (input.shape(i) != 1 && input.shape(i) != extent) {
        wrong_shape(arguments, "shapes that broadcast");
      }
    }
  }
  for (size_t i = 0; i < arguments.inputs.size() && spec.like < 0; ++i) {
    const Tensor& input = arguments.inputs[i];
    if (input.rank() == spec.rank && std::equal(input.shape().begin(), input.shape().end(), spec.shape.begin()))
      spec.like = static_cast<int>(i);
  }
  specs.push_back(spec);
}

// The gradient of input i: `op` of these inputs, summed to the shape of input i where that was broadcast. The last op of the two is
// the one that gives the gradient, and is recorded as such.
Tensor gradient_by(BackwardCall& b, size_t i, std::string_view op, std::initializer_list<Tensor> inputs) {
  const Tensor& like = b.input_like(i);
  const bool summed =
      !std::equal(like.shape().begin(), like.shape().end(), b.gradient().shape().begin(), b.gradient().shape().end());
  CallOptions options;
  if (!summed) options.hints = b.into({i});
  return sum_to(call(op, inputs, {}, options), like, b.into({i}));
}

void backward_add(BackwardCall& b) {
  for (size_t i = 0; i < 2; ++i)
    if (b.needs(i)) b.set(i, sum_to(b.gradient(), b.input_like(i), b.into({i})));
}

void backward_sub(BackwardCall& b) {
  if (b.needs(0)) b.set(0, sum_to(b.gradient(), b.input_like(0), b.into({0})));
  if (b.needs(1)) b.set(1, gradient_by(b, 1, "neg", {b.gradient()}));
}

void backward_mul(BackwardCall& b) {
  for (size_t i = 0; i < 2; ++i)
    if (b.needs(i)) b.set(i, gradient_by(b, i, "mul", {b.gradient(), b.input(1 - i)}));
}

// With y = a / b: da = g / b and db = -(g y) / b.
void backward_div(BackwardCall& b) {
  const Tensor& denominator = b.input(1);
  if (b.needs(0)) b.set(0, gradient_by(b, 0, "div", {b.gradient(), denominator}));
  if (b.needs(1)) b.set(1, gradient_by(b, 1, "div", {call("neg", {mul(b.gradient(), b.output(0))}), denominator}));
}

void backward_neg(BackwardCall& b) { b.set(0, call("neg", {b.gradient()}, {}, {.hints = b.into({0})})); }

void backward_maximum(BackwardCall& b) {
  for (size_t i = 0; i < 2; ++i)
    if (b.needs(i)) b.set(i, gradient_by(b, i, "maximum_backward", {b.gradient(), b.input(i), b.input(1 - i)}));
}

void backward_relu(BackwardCall& b) { b.set(0, call("relu_backward", {b.gradient(), b.output(0)}, {}, {.hints = b.into({0})})); }

void backward_clip(BackwardCall& b) {
  b.set(0, call("clip_backward", {b.gradient(), b.input(0)}, b.attributes(), {.hints = b.into({0})}));
}

// Without the attribute loss_scale: the gradient of the scaled loss contains the loss scale already. The factor may be that scale.
void backward_scale(BackwardCall& b) {
  const Attributes attributes({}, {{"factor", b.attributes()["factor"]}});
  b.set(0, call("scale", {b.gradient()}, attributes, {.hints = b.into({0})}));
}

double divided_loss_scales(std::span<const Tensor> inputs, const Attributes&) {
  return inputs[0].body()->loss_scale / inputs[1].body()->loss_scale;
}

// The gradient scaler says by its attribute that the factor is a loss scale; any other factor is part of the values.
double scaled_loss_scale(std::span<const Tensor> inputs, const Attributes& attributes) {
  return inputs[0].body()->loss_scale * attributes.value_or("loss_scale", 1.0);
}

// What an elementwise op may say of itself, in the words of Op. The default has no gradient.
struct Elementwise {
  AutocastClass autocast = AutocastClass::input_type;
  void (*backward)(BackwardCall&) = nullptr;
  double (*loss_scale)(std::span<const Tensor> inputs, const Attributes&) = nullptr;
  bool needs_attributes = false;
  uint32_t saves_inputs = 0, saves_outputs = 0;
};

constexpr Op elementwise(std::string_view name, int inputs, const Elementwise& with = {}) {
  return {.name = name,
          .inputs = inputs,
          .autocast = with.autocast,
          .shape_rule = broadcast_shape,
          .backward = with.backward,
          .loss_scale = with.loss_scale,
          .broadcasts = true,
          .needs_attributes = with.needs_attributes,
          .saves_inputs = with.saves_inputs,
          .saves_outputs = with.saves_outputs};
}

const Op kElementwise[] = {
    elementwise("add", 2, {.backward = backward_add}),
    elementwise("sub", 2, {.backward = backward_sub}),
    elementwise("mul", 2, {.backward = backward_mul, .loss_scale = multiplied_loss_scales, .saves_inputs = 0b11}),
    elementwise("div", 2,
                {.backward = backward_div, .loss_scale = divided_loss_scales, .saves_inputs = 0b10, .saves_outputs = 0b1}),
    elementwise("neg", 1, {.backward = backward_neg}),
    elementwise("maximum", 2, {.backward = backward_maximum, .saves_inputs = 0b11}),
    elementwise("maximum_backward", 3),
    elementwise("relu", 1, {.backward = backward_relu, .saves_outputs = 0b1}),
    elementwise("relu_backward", 2),
    elementwise("clip", 1, {.backward = backward_clip, .needs_attributes = true, .saves_inputs = 0b1}),
    elementwise("clip_backward", 2, {.needs_attributes = true}),
    elementwise("scale", 1, {.backward = backward_scale, .loss_scale = scaled_loss_scale, .needs_attributes = true}),
};

}  // namespace

std::span<const Op> elementwise_ops() { return kElementwise; }

Tensor add(const Tensor& a, const Tensor& b) { return call("add", {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return call("mul", {a, b}); }
Tensor relu(const Tensor& x) { return call("relu", {x}); }
Tensor scale(const Tensor& x, double factor) { return call("scale", {x}, {{"factor", factor}}); }

Tensor sum_to(const Tensor& gradient, const Tensor& like, std::span<const OutputHint> hints) {
  uint32_t reduced = 0;
  const int shift = gradient.rank() - like.rank();
  for (int i = 0; i < gradient.rank(); ++i)
    if (i < shift || (like.shape(i - shift) == 1 && gradient.shape(i) != 1)) reduced |= 1u << i;
  if (reduced == 0) return gradient;
  const Tensor total = call("sum", {gradient}, {{"dims", static_cast<double>(reduced)}, {"keep", 0}}, {.hints = hints});
  return reshape(total, like.shape());
}

}  // namespace ulpscope
