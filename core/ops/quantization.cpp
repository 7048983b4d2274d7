// FP8: quantization, the product of quantized matrices, and linear layers made of them.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/core/engine/function.h"
#include "ulpscope/core/ops/fp8.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

const char* name_of(ScalingRecipe recipe) { return recipe == ScalingRecipe::current ? "current" : "delayed"; }
std::span<const std::string_view> keys_of(ScalingRecipe recipe) {
  static constexpr std::string_view kDelayed[] = {"amax_history", "amax"};
  return recipe == ScalingRecipe::delayed ? kDelayed : std::span<const std::string_view>();
}
const char* name_of(AmaxChoice choice) { return choice == AmaxChoice::max ? "max" : "most_recent"; }
const char* name_of(Fp8Format format) { return format == Fp8Format::hybrid ? "hybrid" : "e4m3"; }
const char* name_of(Fp8Operand operand) {
  static constexpr const char* kNames[kFp8Operands] = {"input", "weight", "gradient"};
  return kNames[static_cast<size_t>(operand)];
}

namespace {

bool is_number(const Tensor& tensor) { return tensor.size() == 1 && tensor.dtype() == DType::f32; }

// x, of up to FP32, and the scale of delayed scaling; the encodings, and what was used and found.
void quantize_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const bool fits = is_float(x.dtype()) && x.dtype() != DType::f64 && !is_quantized(x.dtype());
  if (!fits || (arguments.inputs.size() > 1 && !is_number(arguments.inputs[1])))
    wrong_shape(arguments, "x in f32, f16 or bf16, and perhaps a scale, one f32");
  if (!arguments.dtype || !is_quantized(*arguments.dtype))
    throw usage_error("quantize{}: expected the type e4m3 or e5m2, got {}", in_module(),
                      arguments.dtype ? info(*arguments.dtype).name : "none");
  OutputSpec values = spec_like(x, 0);
  values.dtype = *arguments.dtype;
  specs.push_back(values);
  OutputSpec scalar = with_role(make_spec(DType::f32, {}), Role::buffer);
  scalar.stays_wide = true;
  // A scale that follows from x is inversely proportional to it; one that is given contains no loss scale.
  const int power = arguments.inputs.size() > 1 ? 0 : 1;
  for (const auto& [name, loss_scale_power] : {std::pair{"scale", -power}, {"inverse_scale", power}, {"amax", 1}}) {
    scalar.loss_scale_power = loss_scale_power;
    specs.push_back(with_name(scalar, name));
  }
}

void scaled_matmul_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &a = arguments.inputs[0], &b = arguments.inputs[1];
  bool fits = a.rank() == 2 && b.rank() == 2 && a.shape(1) == b.shape(0) && is_quantized(a.dtype()) && is_quantized(b.dtype()) &&
              is_number(arguments.inputs[2]) && is_number(arguments.inputs[3]);
  if (arguments.inputs.size() > 4) {
    const Tensor& bias = arguments.inputs[4];
    fits = fits && bias.rank() == 1 && bias.shape(0) == b.shape(1) && is_float(bias.dtype()) && !is_quantized(bias.dtype());
  }
  if (!fits) wrong_shape(arguments, "a [M, K] and b [K, N] in FP8, their inverse scales, one f32 each, and perhaps a bias [N]");
  const DType type = arguments.dtype.value_or(DType::f32);
  if (!is_float(type) || type == DType::f64 || is_quantized(type))
    throw usage_error("scaled_matmul{}: expected the type f32, f16 or bf16, got {}", in_module(), info(type).name);
  const int64_t shape[] = {a.shape(0), b.shape(1)};
  specs.push_back(make_spec(type, shape));
}

void amax_history_update_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& history = arguments.inputs[0];
  const bool fits = history.rank() == 1 && history.dtype() == DType::f32 && history.size() > 0 && is_number(arguments.inputs[1]) &&
                    is_number(arguments.inputs[2]);
  if (!fits) wrong_shape(arguments, "amaxes, f32 [N], a scale and an amax, one f32 each");
  specs.push_back(with_name(with_role(in_place_spec(arguments, 0), Role::buffer), "amax_history"));
  specs.push_back(with_name(with_role(in_place_spec(arguments, 1), Role::buffer), "scale"));
}

const Op kQuantization[] = {
    {.name = "quantize",
     .inputs = 2,
     .optional_inputs = 1,
     .autocast = AutocastClass::exempt,
     .shape_rule = quantize_shape,
     .flops = flops_per_element<2, 0>},
    {.name = "scaled_matmul",
     .inputs = 5,
     .optional_inputs = 1,
     .autocast = AutocastClass::exempt,
     .takes_quantized = true,
     .shape_rule = scaled_matmul_shape,
     .loss_scale = multiplied_loss_scales},
    {.name = "amax_history_update",
     .inputs = 3,
     .autocast = AutocastClass::exempt,
     .shape_rule = amax_history_update_shape,
     .needs_attributes = true,
     .flops = flops_per_element<1, 0>},
};

Attributes scale_attributes(const Fp8Settings& settings) {
  return {{"margin", static_cast<double>(settings.margin)}, {"power_of_two", static_cast<double>(settings.power_of_two)}};
}

QuantizedTensor quantize_as(const Tensor& x, DType type, const Fp8Settings& settings, const Tensor& scale,
                            std::span<const OutputHint> hints) {
  const Attributes attributes = scale ? Attributes() : scale_attributes(settings);
  const Tensors inputs = scale ? Tensors{x, scale} : Tensors{x};
  const Tensors outputs = dispatch(find_op("quantize"), inputs, attributes, {.dtype = type, .hints = hints});
  return {outputs[0], outputs[2], outputs[3]};
}

Tensor multiply(const QuantizedTensor& a, const QuantizedTensor& b, DType type, const Tensor& bias, const OutputHint* hint) {
  Tensors inputs{a.values, b.values, a.inverse_scale, b.inverse_scale};
  if (bias) inputs.push_back(bias);
  const std::span<const OutputHint> hints(hint, hint != nullptr ? 1 : 0);
  return dispatch(find_op("scaled_matmul"), inputs, {}, {.dtype = type, .hints = hints})[0];
}

QuantizedTensor transposed(const QuantizedTensor& x) { return {transpose(x.values), x.inverse_scale, x.amax}; }

// Inputs x and bias, if any, in the type of the result, and the weight as it is.
class Fp8Linear : public Function {
 public:
  Fp8Linear(const Fp8Settings& settings, DelayedScales& scales) : settings_(settings), scales_(scales) {}

  Tensors forward(std::span<const Tensor> inputs) override {
    const ContextGuard<&Context::forward_op> as_linear(&find_op("linear"));
    const Tensor none, &x = inputs[0], &weight = inputs[1], &bias = inputs.size() > 2 ? inputs[2] : none;
    needs_input_gradient_ = x.requires_grad();
    x_ = x.body()->value;
    type_ = x.dtype();
    weight_name_ = weight.body()->parameter;
    if (bias) bias_name_ = bias.body()->parameter;
    has_bias_ = bias.defined();
    const OutputHint cast{Role::weight_cast, weight_name_};
    input_ = quantized(x, Fp8Operand::input, {});
    weight_ = quantized(weight, Fp8Operand::weight, {&cast, 1});
    Tensors results;
    results.push_back(multiply(input_, transposed(weight_), type_, bias, nullptr));
    id_ = results[0].body()->value.op;
    return results;
  }

  Tensors backward(std::span<const Tensor> gradients) override {
    const AutocastScope off(nullptr);  // types are those that forward had
    const ContextGuard<&Context::forward_id> of_product(id_);
    const ContextGuard<&Context::forward_op> as_linear(&find_op("linear"));
    const Tensor& g = gradients[0];
    const QuantizedTensor gradient = quantized(g, Fp8Operand::gradient, {});
    Tensors results(has_bias_ ? 3 : 2);
    const OutputHint of_input{.gradient_of = x_, .gradient_input = 0};
    if (needs_input_gradient_) results[0] = multiply(gradient, weight_, type_, {}, &of_input);
    const OutputHint of_weight{Role::weight_gradient, weight_name_}, of_bias{Role::weight_gradient, bias_name_};
    results[1] = multiply(transposed(gradient), input_, type_, {}, &of_weight);
    if (has_bias_) results[2] = call("sum", {g}, {{"dims", 1}, {"keep", 0}}, {.hints = {&of_bias, 1}});
    update(Fp8Operand::input, input_);
    update(Fp8Operand::weight, weight_);
    update(Fp8Operand::gradient, gradient);
    return results;
  }

 private:
  DType type_of(Fp8Operand operand) const {
    return operand == Fp8Operand::gradient ? settings_.backward_type() : settings_.forward_type();
  }
  DelayedScales::OfOperand& scale_of(Fp8Operand operand) const { return scales_.of[static_cast<size_t>(operand)]; }

  QuantizedTensor quantized(const Tensor& x, Fp8Operand operand, std::span<const OutputHint> hints) const {
    return quantize_as(x, type_of(operand), settings_, scale_of(operand).scale, hints);
  }

  void update(Fp8Operand operand, const QuantizedTensor& tensor) const {
    if (settings_.recipe != ScalingRecipe::delayed) return;
    const auto& [history, scale] = scale_of(operand);
    Attributes attributes = scale_attributes(settings_);
    attributes.set("most_recent", settings_.amax == AmaxChoice::most_recent);
    attributes.set("dtype", static_cast<double>(type_of(operand)));
    const OutputHint hints[] = {{{}, history.body()->parameter}, {{}, scale.body()->parameter}};
    call("amax_history_update", {history, scale, tensor.amax}, attributes, {.hints = hints});
  }

  const Fp8Settings settings_;
  DelayedScales& scales_;
  QuantizedTensor input_, weight_;
  DType type_ = DType::bf16;
  const std::string *weight_name_ = nullptr, *bias_name_ = nullptr;
  bool needs_input_gradient_ = false, has_bias_ = false;
  uint64_t id_ = 0;  // of the forward product
  ValueKey x_ = {};
};

}  // namespace

std::span<const Op> quantization_ops() { return kQuantization; }

QuantizedTensor quantize(const Tensor& x, DType type, const Fp8Settings& settings, const Tensor& scale) {
  return quantize_as(x, type, settings, scale, {});
}

Tensor scaled_matmul(const QuantizedTensor& a, const QuantizedTensor& b, DType type, const Tensor& bias) {
  return multiply(a, b, type, bias, nullptr);
}

Tensor fp8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Fp8Settings& settings, DelayedScales& scales) {
  Context& at = context();
  const DType type = at.autocast->policy().dtype;
  // The casts are named after the place, as those of an op are.
  const uint64_t key = hash_combine(at.module_hash, hash_text("fp8_linear"));
  const uint64_t id = hash_combine(key, at.counters.next(key));
  const auto as_computed = [&](const Tensor& input, size_t index) {
    return input.dtype() == type ? input : autocast_input(input, type, id, index);
  };
  Tensors inputs{as_computed(x, 0), weight};
  if (bias) inputs.push_back(as_computed(bias, 2));
  return ulpscope::apply(std::make_shared<Fp8Linear>(settings, scales), inputs)[0];
}

}  // namespace ulpscope
