// Ops that move elements: views of parts, joining, and looking up rows by index.
#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

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

void cat_shape(const OpArguments& arguments, OutputSpecs& specs) {
  if (arguments.inputs.empty()) wrong_shape(arguments, "at least one tensor");
  const Tensor& first = arguments.inputs[0];
  const auto dim = static_cast<int>(arguments.attributes["dim"]);
  OutputSpec spec = make_spec(first.dtype(), first.shape());
  if (dim < 0 || dim >= first.rank()) wrong_shape(arguments, "a dimension that the tensors have");
  spec.shape[dim] = 0;
  for (const Tensor& input : arguments.inputs) {
    bool fits = input.rank() == spec.rank && is_float(input.dtype());
    for (int i = 0; fits && i < spec.rank; ++i) fits = i == dim || input.shape(i) == spec.shape[i];
    if (!fits) wrong_shape(arguments, "floating-point tensors of one shape but for the dimension that is joined");
    spec.shape[dim] += input.shape(dim);
  }
  specs.push_back(spec);
}

void cat_backward(BackwardCall& b) {
  const auto dim = static_cast<int>(b.attributes()["dim"]);
  int64_t start = 0;
  for (size_t i = 0; i < b.input_count(); ++i) {
    const int64_t extent = b.input_like(i).shape(dim);
    // A part shares its memory with the others, and what receives a gradient may change it in place.
    if (b.needs(i)) b.set(i, call("copy", {slice(b.gradient(), dim, start, extent)}, {}, {.hints = b.into({i})}));
    start += extent;
  }
}

void embedding_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &weight = arguments.inputs[0], &indices = arguments.inputs[1];
  if (weight.rank() != 2 || indices.dtype() != DType::i64 || indices.rank() >= kMaxRank)
    wrong_shape(arguments, "weight [N, C] and i64 indices");
  OutputSpec spec = make_spec(weight.dtype(), indices.shape());
  spec.shape[spec.rank++] = weight.shape(1);
  specs.push_back(spec);
}

void embedding_backward(BackwardCall& b) {
  const Attributes attributes{{"rows", static_cast<double>(b.input_like(0).shape(0))}};
  b.set(0, call("embedding_backward", {b.gradient(), b.input(1)}, attributes, {.hints = b.into({0})}));
}

void embedding_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& gradient = arguments.inputs[0];
  const int64_t shape[] = {static_cast<int64_t>(arguments.attributes["rows"]), gradient.shape(-1)};
  specs.push_back(make_spec(gradient.dtype(), shape));
}

// Indices name elements along dimension dim; in the others an element is at their place, and there may be more of them.
void check_indices(const OpArguments& arguments, const Tensor& x, const Tensor& indices) {
  const auto dim = static_cast<int>(arguments.attributes["dim"]);
  bool fits = indices.dtype() == DType::i64 && indices.rank() == x.rank() && dim >= 0 && dim < x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == dim || indices.shape(i) <= x.shape(i);
  if (!fits) wrong_shape(arguments, "a tensor and i64 indices with as many dimensions, none but dim larger than the tensor's");
}

void gather_shape(const OpArguments& arguments, OutputSpecs& specs) {
  check_indices(arguments, arguments.inputs[0], arguments.inputs[1]);
  specs.push_back(make_spec(arguments.inputs[0].dtype(), arguments.inputs[1].shape()));
}

void gather_backward(BackwardCall& b) {
  Attributes attributes = b.attributes();
  for (int i = 0; i < b.input_like(0).rank(); ++i) attributes.set(kExtentNames[i], static_cast<double>(b.input_like(0).shape(i)));
  b.set(0, call("gather_backward", {b.gradient(), b.input(1)}, attributes, {.hints = b.into({0})}));
}

void gather_backward_shape(const OpArguments& arguments, OutputSpecs& specs) {
  OutputSpec spec = make_spec(arguments.inputs[0].dtype(), arguments.inputs[0].shape());
  for (int i = 0; i < spec.rank; ++i) spec.shape[i] = static_cast<int64_t>(arguments.attributes[kExtentNames[i]]);
  specs.push_back(spec);
}

void scatter_add_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor &x = arguments.inputs[0], &indices = arguments.inputs[1], &values = arguments.inputs[2];
  check_indices(arguments, x, indices);
  bool fits = values.rank() == indices.rank();
  for (int i = 0; fits && i < values.rank(); ++i) fits = indices.shape(i) <= values.shape(i);
  if (!fits) wrong_shape(arguments, "values with at least the extents of the indices");
  specs.push_back(make_spec(x.dtype(), x.shape()));
}

void scatter_add_backward(BackwardCall& b) {
  if (b.needs(0)) b.set(0, b.gradient());
  if (!b.needs(2)) return;
  const Tensor &indices = b.input(1), &values = b.input_like(2);
  const bool all_used = std::equal(indices.shape().begin(), indices.shape().end(), values.shape().begin());
  if (!all_used) throw usage_error("scatter_add: values beyond the indices have no gradient; expected values of their shape");
  b.set(2, call("gather", {b.gradient(), indices}, b.attributes(), {.hints = b.into({2})}));
}

const Op kIndexing[] = {
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
    {.name = "cat", .inputs = kVariadic, .shape_rule = cat_shape, .backward = cat_backward, .needs_attributes = true},
    {.name = "embedding", .inputs = 2, .shape_rule = embedding_shape, .backward = embedding_backward, .saves_inputs = 0b10},
    {.name = "embedding_backward", .inputs = 2, .shape_rule = embedding_backward_shape, .needs_attributes = true},
    {.name = "gather",
     .inputs = 2,
     .shape_rule = gather_shape,
     .backward = gather_backward,
     .needs_attributes = true,
     .saves_inputs = 0b10},
    {.name = "gather_backward", .inputs = 2, .shape_rule = gather_backward_shape, .needs_attributes = true},
    {.name = "scatter_add",
     .inputs = 3,
     .shape_rule = scatter_add_shape,
     .backward = scatter_add_backward,
     .needs_attributes = true,
     .saves_inputs = 0b10},
};

}  // namespace

std::span<const Op> indexing_ops() { return kIndexing; }

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

Tensor cat(std::span<const Tensor> tensors, int dim) {
  if (tensors.empty()) throw usage_error("cat: expected at least one tensor");
  const auto join = [](std::span<const Tensor> parts, int dimension) {
    return dispatch(find_op("cat"), parts, {{"dim", static_cast<double>(dimension)}})[0];
  };
  const int dimension = checked_dimension("cat", tensors[0], dim);
  // Images that lie channels-last are joined as they lie.
  const auto lies_so = [](const Tensor& tensor) { return layout_of(tensor) == Layout::channels_last; };
  if (std::all_of(tensors.begin(), tensors.end(), lies_so)) {
    constexpr int kToMemory[] = {0, 2, 3, 1}, kBack[] = {0, 3, 1, 2};
    Tensors seen;
    for (const Tensor& tensor : tensors) seen.push_back(permute(tensor, kToMemory));
    return permute(join(seen, kBack[dimension]), kBack);
  }
  return join(tensors, dimension);
}

Tensor gather(const Tensor& x, int dim, const Tensor& indices) {
  return call("gather", {x, indices}, {{"dim", static_cast<double>(checked_dimension("gather", x, dim))}});
}

Tensor index_select(const Tensor& x, int dim, const Tensor& indices) {
  const int dimension = checked_dimension("index_select", x, dim);
  if (indices.rank() != 1 || indices.dtype() != DType::i64)
    throw usage_error("index_select: expected i64 indices [N], got {}", indices.describe());
  Extents shape = x.view().shape, strides{};
  shape[dimension] = indices.shape(0);
  strides[dimension] = indices.view().strides[0];
  const auto rank = static_cast<size_t>(x.rank());
  return gather(x, dimension, make_view(indices, {shape.data(), rank}, {strides.data(), rank}));
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& indices, const Tensor& values) {
  return call("scatter_add", {x, indices, values}, {{"dim", static_cast<double>(checked_dimension("scatter_add", x, dim))}});
}

Tensor embedding(const Tensor& weight, const Tensor& indices) { return call("embedding", {weight, indices}); }

}  // namespace ulpscope
