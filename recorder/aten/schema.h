// Overloads of ATen's ops: which function of a trace one computes, in which order it reads, and the product that it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/recorder/aten/tensor.h"

namespace ulpscope::aten {

using Argument = ulpscope_aten_argument;

template <size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// Arguments of a call, in the overload's order, and the tensors that they refer to.
struct Bound {
  std::span<const Argument> arguments;
  const Tensor* tensors = nullptr;

  // Visits the tensors of an argument that is one or a list; those that are not there are left out.
  template <typename Visit>
  void visit(size_t argument, const Visit& visit) const {
    const Argument& each = arguments[argument];
    const uint32_t count = each.kind == ULPSCOPE_ATEN_TENSOR ? 1 : each.kind == ULPSCOPE_ATEN_TENSORS ? each.count : 0;
    for (uint32_t i = 0; i < count; ++i)
      if (tensors[each.first + i].is_present) visit(tensors[each.first + i]);
  }
  // nullptr where the argument is no single tensor.
  const Tensor* tensor(size_t argument) const {
    const Argument& each = arguments[argument];
    return each.kind == ULPSCOPE_ATEN_TENSOR && tensors[each.first].is_present ? &tensors[each.first] : nullptr;
  }
};

// A tensor that an op reads.
struct Read {
  size_t argument = 0;
  uint32_t number = 0;  // among the function's inputs
  const Tensor* tensor = nullptr;
};

class Schema {
 public:
  explicit Schema(const ulpscope_aten_schema& given);

  struct Parameter {
    std::string name;
    bool is_tensor = false, is_written = false, is_out = false;
    std::string default_text;  // as attributes have it
  };

  const std::string& name() const { return name_; }  // without its namespace
  const std::string& base() const { return base_; }  // without what says that it is in place or goes over lists
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::optional<size_t> find(std::string_view parameter) const;

  bool is_recorded() const { return is_recorded_; }
  bool is_collective() const { return is_collective_; }
  bool gathers() const { return gathers_; }  // it writes parameters that all processes have parts of, and is no call
  bool joins() const { return joins_; }      // it puts what it reads together, and is no call
  bool writes() const { return writes_; }
  bool is_view() const { return is_view_; }
  bool is_empty() const { return is_empty_; }      // it makes memory that holds anything
  bool is_set() const { return is_set_; }          // it gives a tensor the memory of another
  bool overwrites() const { return overwrites_; }  // it writes without reading before
  bool is_list() const { return is_list_; }        // a call for each element of its lists
  bool is_pointwise() const { return is_pointwise_; }
  bool is_batch_norm() const { return is_batch_norm_; }

  // The tensors that a call reads, as the function counts them: what is left out or is a number keeps its place.
  std::vector<Read> reads(const Bound& bound) const;
  OpFunction function(const Bound& bound) const;
  // The name under which a call is recorded: an op's id is made from its name, so that a name has one function.
  std::string_view name_of_call(OpFunction function) const;
  // The matrix product that a call is. `output`: its result; of a convolution, only that has its pixels.
  std::optional<ProductShape> product(const Bound& bound, OpFunction function, const Tensor* output) const;
  // Arguments that are no tensors and not their default, as name=value.
  std::string attributes(const Bound& bound) const;
  // A number that calls with the same attributes have.
  uint64_t hash_of_attributes(const Bound& bound) const;
  // Tells the backward ops of a convolution apart.
  bool gives_gradient_of_input(const Bound& bound) const;
  // Each row of the result, along the first dimension, is computed from that row of what it reads alone.
  bool keeps_rows(const Bound& bound) const;
  // The number that an argument is, if it is one.
  std::optional<double> number(const Bound& bound, std::string_view parameter) const;

 private:
  std::vector<size_t> order_of(std::span<const std::string_view> first) const;
  bool flag(const Bound& bound, std::optional<size_t> parameter) const;

  std::string namespace_, name_, base_;
  std::vector<Parameter> parameters_;
  std::vector<size_t> order_, order_for_weight_, attributes_;
  OpFunction plain_function_ = OpFunction::other;
  std::optional<size_t> approximate_, transposed_, output_mask_;
  bool is_recorded_ = true, is_collective_ = false, joins_ = false, gathers_ = false, writes_ = false, is_view_ = false,
       is_empty_ = false, is_set_ = false, is_list_ = false, is_pointwise_ = false, is_batch_norm_ = false, overwrites_ = false,
       reads_values_ = true;
};

}  // namespace ulpscope::aten
