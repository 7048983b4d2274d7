// Elementwise ops. An entry of the array below is the whole definition of one; its formula stands in kernels/formulas.h.
#include <algorithm>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// The shape that all inputs broadcast to, in the common type, laid out like the first input of that shape.
void broadcast_shape(const OpArguments& arguments, OutputSpecs& specs) {
  OutputSpec spec;
  spec.dtype = arguments.inputs[0].dtype();
  for (size_t i = arguments.inputs.size(); i-- > 0;)
    if (has_bit(arguments.op.cast_inputs, i)) spec.dtype = arguments.inputs[i].dtype();  // that of the first: the others select
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
Tensor gradient_by(BackwardCall& b, size_t i, std::string_view op, std::initializer_list<Tensor> inputs,
                   const Attributes& attributes = {}) {
  const Tensor& like = b.input_like(i);
  const bool summed =
      !std::equal(like.shape().begin(), like.shape().end(), b.gradient().shape().begin(), b.gradient().shape().end());
  CallOptions options;
  if (!summed) options.hints = b.into({i});
  return sum_to(call(op, inputs, attributes, options), like, b.into({i}));
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

// dx = NAME_backward(g, x) for an op NAME that saves its input, NAME_backward(g, y) for one that saves its output.
void backward_by_its_op(BackwardCall& b) {
  const Tensor& saved = b.op().saves_outputs != 0 ? b.output(0) : b.input(0);
  b.set(0, call(std::string(b.op().name) + "_backward", {b.gradient(), saved}, b.attributes(), {.hints = b.into({0})}));
}

// For ops that are the same in both inputs: da = NAME_backward(g, a, b), db = NAME_backward(g, b, a).
void backward_of_symmetric(BackwardCall& b) {
  for (size_t i = 0; i < 2; ++i) {
    if (b.needs(i)) {
      b.set(i, gradient_by(b, i, std::string(b.op().name) + "_backward", {b.gradient(), b.input(i), b.input(1 - i)}));
    }
  }
}

void backward_exp(BackwardCall& b) { b.set(0, call("mul", {b.gradient(), b.output(0)}, {}, {.hints = b.into({0})})); }

void backward_log(BackwardCall& b) { b.set(0, call("div", {b.gradient(), b.input(0)}, {}, {.hints = b.into({0})})); }

void backward_pow(BackwardCall& b) {
  static constexpr std::string_view kOps[] = {"pow_backward_base", "pow_backward_exponent"};
  for (size_t i = 0; i < 2; ++i)
    if (b.needs(i)) b.set(i, gradient_by(b, i, kOps[i], {b.gradient(), b.input(0), b.input(1)}));
}

void backward_where(BackwardCall& b) {
  for (size_t i = 1; i < 3; ++i) {
    if (!b.needs(i)) continue;
    b.set(i, gradient_by(b, i, "where_backward", {b.gradient(), b.input(0)}, {{"chosen", i == 1 ? 1.0 : 0.0}}));
  }
}

void backward_masked_fill(BackwardCall& b) {
  b.set(0, gradient_by(b, 0, "masked_fill", {b.gradient(), b.input(1)}, {{"value", 0}}));
}

// Without the attribute loss_scale: the gradient of the scaled loss contains the loss scale already. The factor may be that scale.
void backward_scale(BackwardCall& b) {
  const Attributes attributes({}, {{"factor", b.attributes()["factor"]}});
  b.set(0, call("scale", {b.gradient()}, attributes, {.hints = b.into({0})}));
}

double second_loss_scale(std::span<const Tensor> inputs, const Attributes&) { return inputs[1].body()->loss_scale; }

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
  uint32_t cast_inputs = ~0u;
};

// For functions whose FP16 results are bad: autocast runs them in FP32 (docs/numerics.md has the list).
constexpr AutocastClass kFp32 = AutocastClass::fp32;

Op elementwise(std::string_view name, int inputs, const Elementwise& with = {}) {
  return {.name = name,
          .inputs = inputs,
          .autocast = with.autocast,
          .cast_inputs = with.cast_inputs,
          .shape_rule = broadcast_shape,
          .backward = with.backward,
          .loss_scale = with.loss_scale,
          .broadcasts = true,
          .needs_attributes = with.needs_attributes,
          .saves_inputs = with.saves_inputs,
          .saves_outputs = with.saves_outputs};
}

// What is dropped follows from the attributes, so the gradient is dropped in the same way.
void backward_dropout(BackwardCall& b) { b.set(0, call("dropout", {b.gradient()}, b.attributes(), {.hints = b.into({0})})); }

const Op kElementwise[] = {
    elementwise("add", 2, {.backward = backward_add}),
    elementwise("sub", 2, {.backward = backward_sub}),
    elementwise("mul", 2, {.backward = backward_mul, .loss_scale = multiplied_loss_scales, .saves_inputs = 0b11}),
    elementwise("div", 2,
                {.backward = backward_div, .loss_scale = divided_loss_scales, .saves_inputs = 0b10, .saves_outputs = 0b1}),
    elementwise("neg", 1, {.backward = backward_neg}),
    elementwise("maximum", 2, {.backward = backward_of_symmetric, .saves_inputs = 0b11}),
    elementwise("maximum_backward", 3),
    elementwise("minimum", 2, {.backward = backward_of_symmetric, .saves_inputs = 0b11}),
    elementwise("minimum_backward", 3),
    elementwise("where", 3,
                {.backward = backward_where, .loss_scale = second_loss_scale, .saves_inputs = 0b1, .cast_inputs = 0b110}),
    elementwise("where_backward", 2, {.needs_attributes = true, .cast_inputs = 0b1}),
    elementwise("masked_fill", 2,
                {.backward = backward_masked_fill, .needs_attributes = true, .saves_inputs = 0b10, .cast_inputs = 0b1}),
    elementwise("clamp", 1, {.backward = backward_by_its_op, .needs_attributes = true, .saves_inputs = 0b1}),
    elementwise("clamp_backward", 2, {.needs_attributes = true}),
    elementwise("abs", 1, {.backward = backward_by_its_op, .saves_inputs = 0b1}),
    elementwise("abs_backward", 2),
    elementwise("sqrt", 1, {.backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("sqrt_backward", 2),
    elementwise("rsqrt", 1, {.autocast = kFp32, .backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("rsqrt_backward", 2),
    elementwise("reciprocal", 1, {.autocast = kFp32, .backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("reciprocal_backward", 2),
    elementwise("exp", 1, {.autocast = kFp32, .backward = backward_exp, .saves_outputs = 0b1}),
    elementwise("log", 1, {.autocast = kFp32, .backward = backward_log, .saves_inputs = 0b1}),
    elementwise("pow", 2, {.autocast = kFp32, .backward = backward_pow, .saves_inputs = 0b11}),
    elementwise("pow_backward_base", 3),
    elementwise("pow_backward_exponent", 3),
    elementwise("relu", 1, {.backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("relu_backward", 2),
    elementwise("tanh", 1, {.backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("tanh_backward", 2),
    elementwise("sigmoid", 1, {.backward = backward_by_its_op, .saves_outputs = 0b1}),
    elementwise("sigmoid_backward", 2),
    elementwise("silu", 1, {.backward = backward_by_its_op, .saves_inputs = 0b1}),
    elementwise("silu_backward", 2),
    elementwise("softplus", 1, {.autocast = kFp32, .backward = backward_by_its_op, .saves_inputs = 0b1}),
    elementwise("softplus_backward", 2),
    elementwise("gelu", 1, {.backward = backward_by_its_op, .saves_inputs = 0b1}),
    elementwise("gelu_backward", 2),
    elementwise("gelu_tanh", 1, {.backward = backward_by_its_op, .saves_inputs = 0b1}),
    elementwise("gelu_tanh_backward", 2),
    elementwise("dropout", 1, {.backward = backward_dropout, .needs_attributes = true}),
    // Of losses and reductions; what is FP32 beside narrower inputs is taken as it is.
    elementwise("mse_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("l1_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("huber_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("bce_with_logits_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("binary_cross_entropy_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("kl_div_backward", 3, {.needs_attributes = true, .cast_inputs = 0b110}),
    elementwise("var_backward", 3, {.needs_attributes = true, .cast_inputs = 0b011}),
    elementwise("max_backward", 4, {.cast_inputs = 0b0111}),
    elementwise("norm_backward", 3),
    elementwise("scale", 1, {.backward = backward_scale, .loss_scale = scaled_loss_scale, .needs_attributes = true}),
};

}  // namespace

std::span<const Op> elementwise_ops() { return kElementwise; }

Tensor add(const Tensor& a, const Tensor& b) { return call("add", {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return call("mul", {a, b}); }
Tensor relu(const Tensor& x) { return call("relu", {x}); }
Tensor scale(const Tensor& x, double factor) { return call("scale", {x}, {{"factor", factor}}); }

Tensor dropout(const Tensor& x, double p) {
  if (!(p >= 0 && p <= 1)) throw usage_error("dropout: expected a share from 0 to 1, got {}", p);
  Context& at = context();
  const uint64_t key = hash_combine(at.module_hash, hash_text("dropout"));
  const uint64_t call_number = hash_combine(key, at.counters.next(key));
  const uint64_t pass = hash_combine(at.step, at.micro_batch << 8 | at.loss_index);
  // Attributes hold integers of 53 bits.
  const uint64_t stream = hash_combine(call_number, pass) >> 11;
  return call("dropout", {x},
              Attributes({{"p", p}}, {{"seed", static_cast<double>(at.seed)}, {"stream", static_cast<double>(stream)}}));
}

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
