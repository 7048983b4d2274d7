// The list of all ops, and what their definitions share.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

std::span<const Op* const> all_ops() {
  static const std::vector<const Op*> ops = [] {
    std::vector<const Op*> list;
    for (const auto family :
         {elementwise_ops(), shape_ops(), indexing_ops(), reduction_ops(), row_ops(), product_ops(), convolution_ops(),
          pooling_ops(), normalization_ops(), recurrent_ops(), loss_ops(), quantization_ops(), training_ops()})
      for (const Op& op : family) list.push_back(&op);
    return list;
  }();
  return ops;
}

const Op& find_op(std::string_view name) {
  static const std::map<std::string_view, const Op*> by_name = [] {
    std::map<std::string_view, const Op*> index;
    for (const Op* op : all_ops()) index.emplace(op->name, op);
    return index;
  }();
  const auto found = by_name.find(name);
  if (found != by_name.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [known, op] : by_name) names.emplace_back(known);
  throw usage_error("unknown op '{}'{}", name, did_you_mean(name, names));
}

OutputSpec make_spec(DType dtype, std::span<const int64_t> shape, Layout layout) {
  OutputSpec spec;
  spec.dtype = dtype;
  spec.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), spec.shape.begin());
  spec.layout = layout;
  return spec;
}

OutputSpec spec_like(const Tensor& tensor, int input) {
  OutputSpec spec = make_spec(tensor.dtype(), tensor.shape());
  spec.like = input;
  return spec;
}

OutputSpec in_place_spec(const OpArguments& arguments, int input) {
  const Tensor& tensor = arguments.inputs[static_cast<size_t>(input)];
  if (!is_dense(tensor.view()))
    wrong_shape(arguments, fmt::format("no gaps or repeated elements in input {}, which changes in place", input));
  OutputSpec spec = make_spec(tensor.dtype(), tensor.shape());
  spec.alias = input;
  return spec;
}

OutputSpec with_role(OutputSpec spec, Role role) {
  spec.role = role;
  return spec;
}

OutputSpec with_name(OutputSpec spec, std::string_view name) {
  spec.name = name;
  return spec;
}

Role weight_role(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? Role::weight : Role::master_weight; }

double multiplied_loss_scales(std::span<const Tensor> inputs, const Attributes&) {
  return inputs[0].body()->loss_scale * inputs[1].body()->loss_scale;
}

void wrong_shape(const OpArguments& arguments, std::string_view expected) {
  std::vector<std::string> came;
  for (const Tensor& input : arguments.inputs) came.push_back(input.describe());
  const std::string& module = *context().module;
  throw usage_error("{}{}: expected {}, got {}", arguments.op.name, module.empty() ? "" : fmt::format(" in module '{}'", module),
                    expected, came.empty() ? "nothing" : join_words(came));
}

int checked_dimension(std::string_view op, const Tensor& x, int dim) {
  const int dimension = dim < 0 ? dim + x.rank() : dim;
  if (dimension < 0 || dimension >= x.rank()) throw usage_error("{}: {} has no dimension {}", op, x.describe(), dim);
  return dimension;
}

Layout layout_of(const Tensor& tensor) {
  return tensor.rank() == 4 && !tensor.is_contiguous() && tensor.view().strides[1] == 1 ? Layout::channels_last
                                                                                        : Layout::contiguous;
}

}  // namespace ulpscope
