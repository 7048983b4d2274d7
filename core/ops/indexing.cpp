// Ops that move elements: joining, and looking up by index.
#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

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
