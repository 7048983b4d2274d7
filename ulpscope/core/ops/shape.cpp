// Views, copies, casts, and the ops by which values enter: source and fill.
#include <algorithm>
#include <optional>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// The strides with which the elements of `view`, where they lie, have another shape of as many; nothing where there are none.
std::optional<Extents> strides_in_shape(const TensorView& view, std::span<const int64_t> shape) {
  Extents strides{};
  int next = static_cast<int>(shape.size()) - 1;  // the dimension of `shape` to be given a stride, from the last on
  if (view.size() == 0 || view.rank == 0) {
    for (int64_t stride = 1; next >= 0; stride *= shape[static_cast<size_t>(next--)]) strides[next] = stride;
    return strides;
  }
  // Dimensions of the view that lie as one are taken together.
  for (int last = view.rank - 1; last >= 0;) {
    int first = last;
    int64_t elements = view.shape[last];
    while (first > 0 && (view.shape[first - 1] == 1 || elements == 1 || view.strides[first - 1] == elements * view.strides[last])) {
      if (elements == 1) last = first - 1;
      elements *= view.shape[--first];
    }
    int64_t given = 1;
    for (; next >= 0 && (given < elements || shape[static_cast<size_t>(next)] == 1); --next) {
      strides[next] = given * view.strides[last];
      given *= shape[static_cast<size_t>(next)];
    }
    if (given != elements) return std::nullopt;
    last = first - 1;
  }
  return strides;
}

// reshape: attributes rank, d0, d1, ...; the memory order allows it (reshape() below copies where it does not).
void reshape_shape(const OpArguments& arguments, OutputSpecs& specs) {
  OutputSpec spec;
  spec.dtype = arguments.inputs[0].dtype();
  spec.rank = static_cast<int>(arguments.attributes["rank"]);
  for (int i = 0; i < spec.rank; ++i) spec.shape[i] = static_cast<int64_t>(arguments.attributes[kExtentNames[i]]);
  const auto strides = strides_in_shape(arguments.inputs[0].view(), {spec.shape.data(), static_cast<size_t>(spec.rank)});
  if (!strides) wrong_shape(arguments, "a tensor that lies so that it can be seen in another shape");
  spec.strides = *strides;
  specs.push_back(spec);
}

void reshape_backward(BackwardCall& b) { b.set(0, reshape(b.gradient(), b.input_like(0).shape())); }

void transpose_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  if (x.rank() < 2) wrong_shape(arguments, "at least two dimensions");
  OutputSpec spec = make_spec(x.dtype(), x.shape());
  spec.strides = x.view().strides;
  std::swap(spec.shape[spec.rank - 1], spec.shape[spec.rank - 2]);
  std::swap(spec.strides[spec.rank - 1], spec.strides[spec.rank - 2]);
  specs.push_back(spec);
}

void transpose_backward(BackwardCall& b) { b.set(0, transpose(b.gradient())); }

void copy_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(make_spec(arguments.inputs[0].dtype(), arguments.inputs[0].shape()));
}

// The gradient of a copy is laid out like the copied tensor, so that what comes before sees its own layout.
void copy_backward(BackwardCall& b) {
  const Tensor& like = b.input_like(0);
  Attributes attributes;
  attributes.set("channels_last", layout_of(like) == Layout::channels_last);
  b.set(0, call("copy", {b.gradient()}, attributes, {.hints = b.into({0})}));
}

void copy_to_layout_shape(const OpArguments& arguments, OutputSpecs& specs) {
  copy_shape(arguments, specs);
  if (arguments.attributes.value_or("channels_last", 0) != 0) specs[0].layout = Layout::channels_last;
}

void cast_shape(const OpArguments& arguments, OutputSpecs& specs) {
  OutputSpec spec = spec_like(arguments.inputs[0], 0);
  spec.dtype = *arguments.dtype;
  specs.push_back(spec);
}

void cast_backward(BackwardCall& b) {
  const Tensor& like = b.input_like(0);
  OutputHint hint = b.into({0})[0];
  if (hint.role == Role::weight_gradient) hint.role = Role::accumulated_gradient;
  b.set(0, call("cast", {b.gradient()}, {}, {.dtype = like.dtype(), .hints = {&hint, 1}}));
}

// fill: a tensor like the input, all elements the attribute `value`.
void fill_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(make_spec(arguments.dtype.value_or(arguments.inputs[0].dtype()), arguments.inputs[0].shape()));
}

// Its input itself, in whatever layout: nothing is written.
void source_shape(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(make_spec(arguments.inputs[0].dtype(), arguments.inputs[0].shape()));
  specs[0].alias = 0;
}

const Op kShape[] = {
    {.name = "reshape", .shape_rule = reshape_shape, .backward = reshape_backward, .is_view = true, .needs_attributes = true},
    {.name = "transpose", .shape_rule = transpose_shape, .backward = transpose_backward, .is_view = true},
    {.name = "copy", .shape_rule = copy_to_layout_shape, .backward = copy_backward},
    {.name = "cast", .autocast = AutocastClass::exempt, .shape_rule = cast_shape, .backward = cast_backward},
    {.name = "fill", .autocast = AutocastClass::exempt, .shape_rule = fill_shape, .needs_attributes = true},
    {.name = "source", .autocast = AutocastClass::exempt, .shape_rule = source_shape},
};

}  // namespace

std::span<const Op> shape_ops() { return kShape; }

Tensor cast(const Tensor& x, DType dtype) { return call("cast", {x}, {}, {.dtype = dtype}); }
Tensor copy(const Tensor& x) { return call("copy", {x}); }
Tensor transpose(const Tensor& x) { return call("transpose", {x}); }

Tensor reshape(const Tensor& x, std::span<const int64_t> shape) {
  if (std::equal(shape.begin(), shape.end(), x.shape().begin(), x.shape().end())) return x;
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = static_cast<int>(i);
    } else {
      known *= shape[i];
    }
  }
  const bool fits = shape.size() <= kMaxRank && (unknown < 0 ? known == x.size() : known > 0 && x.size() % known == 0);
  if (!fits) throw usage_error("reshape: {} does not have the elements of {}", x.describe(), describe_shape(shape));
  Attributes attributes{{"rank", static_cast<double>(shape.size())}};
  Extents whole{};
  for (size_t i = 0; i < shape.size(); ++i) {
    whole[i] = static_cast<int>(i) == unknown ? x.size() / known : shape[i];
    attributes.set(kExtentNames[i], static_cast<double>(whole[i]));
  }
  const bool is_view = strides_in_shape(x.view(), {whole.data(), shape.size()}).has_value();
  return call("reshape", {is_view ? x : copy(x)}, attributes);
}

Tensor source(const Tensor& x, Role role, const std::string* parameter) {
  const OutputHint hint{role, parameter};
  call("source", {x}, {}, {.hints = {&hint, 1}});
  return x;
}

}  // namespace ulpscope
