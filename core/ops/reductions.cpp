// Sums, means, variances, norms and maxima over dimensions, and counts of a whole tensor. Sums add in FP32 (FP64 for f64), norms of
// gradients in FP64, and all round once.
#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

uint32_t all_dimensions(const Tensor& x) { return (1u << x.rank()) - 1; }

void reduction_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const auto dims = static_cast<uint32_t>(arguments.attributes["dims"]);
  const bool keep = arguments.attributes["keep"] != 0;
  if (dims & ~all_dimensions(x)) wrong_shape(arguments, "dimensions to reduce that the tensor has");
  OutputSpec spec;
  spec.dtype = x.dtype();
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = (dims >> i & 1) != 0;
    if (!reduced || keep) spec.shape[spec.rank++] = reduced ? 1 : x.shape(i);
  }
  specs.push_back(spec);
}

// A tensor of the output's shape, seen in the input's: a view that repeats elements along the reduced dimensions.
Tensor expanded(BackwardCall& b, const Tensor& tensor) {
  const Tensor& x = b.input_like(0);
  const auto dims = static_cast<uint32_t>(b.attributes()["dims"]);
  const bool kept = b.attributes()["keep"] != 0;
  Extents strides{};
  for (int i = 0, next = 0; i < x.rank(); ++i) {
    const bool reduced = (dims >> i & 1) != 0;
    strides[i] = reduced ? 0 : tensor.view().strides[next];
    if (!reduced || kept) ++next;
  }
  return make_view(tensor, x.shape(), {strides.data(), static_cast<size_t>(x.rank())});
}

void sum_backward(BackwardCall& b) { b.set(0, call("copy", {expanded(b, b.gradient())}, {}, {.hints = b.into({0})})); }

void mean_backward(BackwardCall& b) {
  const double count = static_cast<double>(b.input_like(0).size()) / static_cast<double>(b.gradient().size());
  // A smaller batch has another factor.
  const Attributes attributes({}, {{"factor", 1.0 / count}});
  b.set(0, call("scale", {expanded(b, b.gradient())}, attributes, {.hints = b.into({0})}));
}

constexpr std::string_view kMean = "mean", kCount = "count";

// A reduction that has no value where there is nothing; and beside it, unless it is norm, a statistic that backward needs, in FP32.
template <const std::string_view* statistic>
void nonempty_shape(const OpArguments& arguments, OutputSpecs& specs) {
  reduction_shape(arguments, specs);
  const Tensor& x = arguments.inputs[0];
  const auto dims = static_cast<uint32_t>(arguments.attributes["dims"]);
  for (int i = 0; i < x.rank(); ++i)
    if ((dims >> i & 1) != 0 && x.shape(i) == 0) wrong_shape(arguments, "at least one element in each reduced dimension");
  if (statistic == nullptr) return;
  OutputSpec wide = with_name(with_role(specs[0], Role::buffer), *statistic);
  wide.dtype = wide_type(x.dtype());
  wide.stays_wide = true;
  specs.push_back(wide);
}

void var_backward(BackwardCall& b) {
  const double count = static_cast<double>(b.input_like(0).size()) / static_cast<double>(b.gradient().size());
  const Attributes attributes({}, {{"factor", 2 / std::max(0.0, count - b.attributes()["correction"])}});
  b.set(0, call("var_backward", {expanded(b, b.gradient()), b.input(0), expanded(b, b.output(1))}, attributes,
                {.hints = b.into({0})}));
}

void max_backward(BackwardCall& b) {
  b.set(0, call("max_backward", {expanded(b, b.gradient()), b.input(0), expanded(b, b.output(0)), expanded(b, b.output(1))}, {},
                {.hints = b.into({0})}));
}

void norm_backward(BackwardCall& b) {
  b.set(0, call("norm_backward", {expanded(b, b.gradient()), b.input(0), expanded(b, b.output(0))}, {}, {.hints = b.into({0})}));
}

void gradient_norm_shape(const OpArguments& arguments, OutputSpecs& specs) {
  if (arguments.inputs.empty()) wrong_shape(arguments, "at least one gradient");
  const bool wide = arguments.inputs[0].dtype() == DType::f64;
  OutputSpec norm = with_role(make_spec(wide ? DType::f64 : DType::f32, {}), Role::buffer);
  norm.stays_wide = true;
  specs.push_back(norm);
}

double gradient_norm_flops(std::span<const Tensor> inputs, std::span<const Tensor>) {
  double flops = 0;
  for (const Tensor& gradient : inputs) flops += 2 * static_cast<double>(gradient.size());
  return flops;
}

void correct_count_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& logits = arguments.inputs[0];
  const Tensor& target = arguments.inputs[1];
  if (logits.rank() != 2 || target.rank() != 1 || target.shape(0) != logits.shape(0) || target.dtype() != DType::i64)
    wrong_shape(arguments, "logits [N, C] and i64 targets [N]");
  specs.push_back(make_spec(DType::i64, {}));
}

const Op kReductions[] = {
    {.name = "sum",
     .autocast = AutocastClass::fp32_unless_dtype,
     .shape_rule = reduction_shape,
     .backward = sum_backward,
     .needs_attributes = true,
     .flops = flops_per_element<1, 0>},
    {.name = "mean",
     .shape_rule = reduction_shape,
     .backward = mean_backward,
     .needs_attributes = true,
     .flops = flops_per_element<1, 0>},
    {.name = "var",
     .shape_rule = nonempty_shape<&kMean>,
     .backward = var_backward,
     .needs_attributes = true,
     .saves_inputs = 0b1,
     .saves_outputs = 0b10,
     .flops = flops_per_element<4, 0>},
    {.name = "max",
     .shape_rule = nonempty_shape<&kCount>,
     .backward = max_backward,
     .needs_attributes = true,
     .saves_inputs = 0b1,
     .saves_outputs = 0b11,
     .flops = flops_per_element<2, 0>},
    {.name = "norm",
     .autocast = AutocastClass::fp32,
     .shape_rule = nonempty_shape<nullptr>,
     .backward = norm_backward,
     .needs_attributes = true,
     .saves_inputs = 0b1,
     .saves_outputs = 0b1,
     .flops = flops_per_element<2, 0>},
    {.name = "gradient_norm",
     .inputs = kVariadic,
     .autocast = AutocastClass::exempt,
     .shape_rule = gradient_norm_shape,
     .flops = gradient_norm_flops},
    {.name = "correct_count",
     .inputs = 2,
     .autocast = AutocastClass::exempt,
     .shape_rule = correct_count_shape,
     .flops = flops_per_element<1, 0>},
};

Tensor reduce(std::string_view name, const Tensor& x, uint32_t dims, bool keep) {
  return call(name, {x}, {{"dims", static_cast<double>(dims)}, {"keep", keep ? 1.0 : 0.0}});
}

}  // namespace

std::span<const Op> reduction_ops() { return kReductions; }

Tensor sum(const Tensor& x, uint32_t dims, bool keep) { return reduce("sum", x, dims, keep); }
Tensor sum(const Tensor& x) { return sum(x, all_dimensions(x)); }
Tensor mean(const Tensor& x, uint32_t dims, bool keep) { return reduce("mean", x, dims, keep); }
Tensor max(const Tensor& x, uint32_t dims, bool keep) { return reduce("max", x, dims, keep); }
Tensor norm(const Tensor& x, uint32_t dims, bool keep) { return reduce("norm", x, dims, keep); }
Tensor var(const Tensor& x, uint32_t dims, double correction, bool keep) {
  return call("var", {x}, {{"dims", static_cast<double>(dims)}, {"keep", keep ? 1.0 : 0.0}, {"correction", correction}});
}
Tensor mean(const Tensor& x) { return reduce("mean", x, all_dimensions(x), false); }

}  // namespace ulpscope
