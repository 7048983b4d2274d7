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

// permute: attribute d_i is the input's dimension that becomes dimension i.
void permute_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  OutputSpec spec = make_spec(x.dtype(), x.shape());
  for (int i = 0; i < spec.rank; ++i) {
    const auto from = static_cast<int>(arguments.attributes[kExtentNames[i]]);
    spec.shape[i] = x.shape(from);
    spec.strides[i] = x.view().strides[from];
  }
  specs.push_back(spec);
}

void permute_backward(BackwardCall& b) {
  std::array<int, kMaxRank> inverse{};
  const int rank = b.input_like(0).rank();
  for (int i = 0; i < rank; ++i) inverse[static_cast<size_t>(b.attributes()[kExtentNames[i]])] = i;
  b.set(0, permute(b.gradient(), {inverse.data(), static_cast<size_t>(rank)}));
}

// slice: `extent` elements of dimension dim, from start on, every step-th.
void slice_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const auto dim = static_cast<int>(arguments.attributes["dim"]);
  const auto start = static_cast<int64_t>(arguments.attributes["start"]), step = static_cast<int64_t>(arguments.attributes["step"]);
  OutputSpec spec = make_spec(x.dtype(), x.shape());
  spec.strides = x.view().strides;
  spec.shape[dim] = static_cast<int64_t>(arguments.attributes["extent"]);
  spec.offset = start * spec.strides[dim];
  spec.strides[dim] *= step;
  specs.push_back(spec);
}

void slice_backward(BackwardCall& b) {
  Attributes attributes = b.attributes();
  attributes.set("whole", static_cast<double>(b.input_like(0).shape(static_cast<int>(attributes["dim"]))));
  b.set(0, call("slice_backward", {b.gradient()}, attributes, {.hints = b.into({0})}));
}

void slice_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  OutputSpec spec = make_spec(gradient.dtype(), gradient.shape());
  spec.shape[static_cast<int>(arguments.attributes["dim"])] = static_cast<int64_t>(arguments.attributes["whole"]);
  specs.push_back(spec);
}

// split: `parts` views of equal extent along dim, one output each.
void split_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const auto dim = static_cast<int>(arguments.attributes["dim"]);
  const auto parts = static_cast<int64_t>(arguments.attributes["parts"]);
  OutputSpec spec = make_spec(x.dtype(), x.shape());
  spec.strides = x.view().strides;
  spec.shape[dim] /= parts;
  for (int64_t i = 0; i < parts; ++i) {
    spec.offset = i * spec.shape[dim] * spec.strides[dim];
    specs.push_back(spec);
  }
}

// Where no gradient arrived at a part, it is zero.
void split_backward(BackwardCall& b) {
  Tensors gradients;
  const Tensor* some = nullptr;
  const auto parts = static_cast<size_t>(b.attributes()["parts"]);
  for (size_t i = 0; i < parts && some == nullptr; ++i)
    if (b.gradient(i)) some = &b.gradient(i);
  for (size_t i = 0; i < parts; ++i) gradients.push_back(b.gradient(i) ? b.gradient(i) : call("fill", {*some}, {{"value", 0}}));
  b.set(0, dispatch(find_op("cat"), gradients, {{"dim", b.attributes()["dim"]}}, {.hints = b.into({0})})[0]);
}

// expand: to the extents d0, d1, ...; those that repeat an element have stride 0.
void expand_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  OutputSpec spec;
  spec.dtype = x.dtype();
  spec.rank = static_cast<int>(arguments.attributes["rank"]);
  for (int i = 0; i < spec.rank; ++i) {
    const int from = i - (spec.rank - x.rank());
    spec.shape[i] = static_cast<int64_t>(arguments.attributes[kExtentNames[i]]);
    spec.strides[i] = from >= 0 && x.shape(from) == spec.shape[i] ? x.view().strides[from] : 0;
  }
  specs.push_back(spec);
}

void expand_backward(BackwardCall& b) { b.set(0, sum_to(b.gradient(), b.input_like(0), b.into({0}))); }

// The gradient of a copy is laid out like the copied tensor, so that what comes before sees its own layout.
void copy_backward(BackwardCall& b) {
  const Tensor& like = b.input_like(0);
  Attributes attributes;
  attributes.set("channels_last", layout_of(like) == Layout::channels_last);
  b.set(0, call("copy", {b.gradient()}, attributes, {.hints = b.into({0})}));
}

void copy_to_layout_shape(const OpArguments& arguments, OutputSpecs& specs) {
  shaped_as_input<0>(arguments, specs);
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
  shaped_as_input<0>(arguments, specs);
  specs[0].alias = 0;
}

const Op kShape[] = {
    {.name = "reshape", .shape_rule = reshape_shape, .backward = reshape_backward, .is_view = true, .needs_attributes = true},
    {.name = "transpose", .shape_rule = transpose_shape, .backward = transpose_backward, .is_view = true},
    {.name = "permute", .shape_rule = permute_shape, .backward = permute_backward, .is_view = true, .needs_attributes = true},
    {.name = "slice", .shape_rule = slice_shape, .backward = slice_backward, .is_view = true, .needs_attributes = true},
    {.name = "slice_backward", .shape_rule = slice_backward_shape, .needs_attributes = true},
    {.name = "split",
     .shape_rule = split_shape,
     .backward = split_backward,
     .is_view = true,
     .needs_attributes = true,
     .differentiable_outputs = ~0u},
    {.name = "expand", .shape_rule = expand_shape, .backward = expand_backward, .is_view = true, .needs_attributes = true},
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

Tensor permute(const Tensor& x, std::span<const int> order) {
  uint32_t seen = 0;
  for (const int dim : order) seen |= dim >= 0 && dim < x.rank() ? 1u << dim : 0;
  if (static_cast<int>(order.size()) != x.rank() || seen != (1u << x.rank()) - 1)
    throw usage_error("permute: expected each dimension of {} once", x.describe());
  Attributes attributes;
  for (size_t i = 0; i < order.size(); ++i) attributes.set(kExtentNames[i], order[i]);
  return call("permute", {x}, attributes);
}

Tensor slice(const Tensor& x, int dim, int64_t start, int64_t extent, int64_t step) {
  const int dimension = checked_dimension("slice", x, dim);
  if (start < 0 || extent < 0 || step < 1 || (extent > 0 && start + (extent - 1) * step >= x.shape(dimension)))
    throw usage_error("slice: {} has no {} elements from {} on in dimension {}, in steps of {}", x.describe(), extent, start, dim,
                      step);
  return call("slice", {x},
              {{"dim", static_cast<double>(dimension)},
               {"start", static_cast<double>(start)},
               {"extent", static_cast<double>(extent)},
               {"step", static_cast<double>(step)}});
}

Tensors split(const Tensor& x, int64_t parts, int dim) {
  const int dimension = checked_dimension("split", x, dim);
  if (parts < 1 || x.shape(dimension) % parts != 0)
    throw usage_error("split: dimension {} of {} cannot be cut into {} equal parts", dim, x.describe(), parts);
  return dispatch(find_op("split"), {&x, 1}, {{"dim", static_cast<double>(dimension)}, {"parts", static_cast<double>(parts)}});
}

Tensor expand(const Tensor& x, std::span<const int64_t> shape) {
  const int shift = static_cast<int>(shape.size()) - x.rank();
  bool fits = shift >= 0 && shape.size() <= kMaxRank;
  for (int i = 0; fits && i < x.rank(); ++i) fits = x.shape(i) == shape[static_cast<size_t>(i + shift)] || x.shape(i) == 1;
  for (const int64_t extent : shape) fits = fits && extent >= 0;
  if (!fits) throw usage_error("expand: {} does not broadcast to {}", x.describe(), describe_shape(shape));
  Attributes attributes{{"rank", static_cast<double>(shape.size())}};
  for (size_t i = 0; i < shape.size(); ++i) attributes.set(kExtentNames[i], static_cast<double>(shape[i]));
  return call("expand", {x}, attributes);
}

Tensor source(const Tensor& x, Role role, const std::string* parameter, std::string_view name) {
  const OutputHint hint{.role = role, .parameter = parameter, .name = name};
  call("source", {x}, {}, {.hints = {&hint, 1}});
  return x;
}

}  // namespace ulpscope
