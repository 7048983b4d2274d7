#include "ulpscope/recorder/aten/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "ulpscope/base/hash.h"

namespace ulpscope::aten {
namespace {

// Names of ATen, without the underscore of what is in place and without _foreach_.
const std::unordered_map<std::string_view, OpFunction>& functions() {
  static const std::unordered_map<std::string_view, OpFunction> table{
      {"_to_copy", OpFunction::cast},
      {"clone", OpFunction::copy},
      {"copy", OpFunction::copy},
      {"contiguous", OpFunction::copy},
      {"mm", OpFunction::matmul},
      {"bmm", OpFunction::matmul},
      {"dot", OpFunction::matmul},
      {"mv", OpFunction::matmul},
      {"addmm", OpFunction::linear},
      {"addmv", OpFunction::linear},
      {"addbmm", OpFunction::linear},
      {"baddbmm", OpFunction::linear},
      {"mkldnn_linear", OpFunction::linear},
      {"_scaled_mm", OpFunction::scaled_matmul},
      {"mkldnn_convolution", OpFunction::convolution},
      {"cudnn_convolution", OpFunction::convolution},
      {"_convolution", OpFunction::convolution},
      {"_scaled_dot_product_flash_attention", OpFunction::attention},
      {"_scaled_dot_product_flash_attention_for_cpu", OpFunction::attention},
      {"_scaled_dot_product_efficient_attention", OpFunction::attention},
      {"_scaled_dot_product_cudnn_attention", OpFunction::attention},
      {"native_batch_norm", OpFunction::batch_norm},
      {"cudnn_batch_norm", OpFunction::batch_norm},
      {"_native_batch_norm_legit", OpFunction::batch_norm},
      {"_batch_norm_with_update", OpFunction::batch_norm},
      {"_batch_norm_no_update", OpFunction::batch_norm},
      {"native_batch_norm_backward", OpFunction::batch_norm_backward},
      {"cudnn_batch_norm_backward", OpFunction::batch_norm_backward},
      {"batch_norm_backward", OpFunction::batch_norm_backward},
      {"native_layer_norm", OpFunction::layer_norm},
      {"native_layer_norm_backward", OpFunction::layer_norm_backward},
      {"native_group_norm", OpFunction::group_norm},
      {"native_group_norm_backward", OpFunction::group_norm_backward},
      {"_fused_rms_norm", OpFunction::rms_norm},
      {"_fused_rms_norm_backward", OpFunction::rms_norm_backward},
      {"_softmax", OpFunction::softmax},
      {"_softmax_backward_data", OpFunction::softmax_backward},
      {"_safe_softmax", OpFunction::softmax},
      {"_masked_softmax", OpFunction::masked_softmax},
      {"_log_softmax", OpFunction::log_softmax},
      {"_log_softmax_backward_data", OpFunction::log_softmax_backward},
      {"threshold_backward", OpFunction::relu_backward},
      {"hardtanh", OpFunction::clamp},
      {"hardtanh_backward", OpFunction::clamp_backward},
      {"clamp_min", OpFunction::clamp},
      {"clamp_max", OpFunction::clamp},
      {"native_dropout", OpFunction::dropout},
      {"_fused_dropout", OpFunction::dropout},
      {"full", OpFunction::fill},
      {"full_like", OpFunction::fill},
      {"zeros", OpFunction::fill},
      {"zeros_like", OpFunction::fill},
      {"ones", OpFunction::fill},
      {"ones_like", OpFunction::fill},
      {"new_full", OpFunction::fill},
      {"new_zeros", OpFunction::fill},
      {"new_ones", OpFunction::fill},
      {"scalar_tensor", OpFunction::fill},
      {"arange", OpFunction::fill},
      {"eye", OpFunction::fill},
      {"linspace", OpFunction::fill},
      {"zero", OpFunction::fill},
      {"rand", OpFunction::fill},
      {"rand_like", OpFunction::fill},
      {"randn", OpFunction::fill},
      {"randn_like", OpFunction::fill},
      {"randint", OpFunction::fill},
      {"randperm", OpFunction::fill},
      {"normal", OpFunction::fill},
      {"uniform", OpFunction::fill},
      {"bernoulli", OpFunction::fill},
      {"exponential", OpFunction::fill},
      {"amax", OpFunction::max},
      {"linalg_vector_norm", OpFunction::norm},
      {"max_pool2d_with_indices", OpFunction::max_pool},
      {"max_pool2d_with_indices_backward", OpFunction::max_pool_backward},
      {"max_pool3d_with_indices", OpFunction::max_pool},
      {"max_pool3d_with_indices_backward", OpFunction::max_pool_backward},
      {"adaptive_max_pool2d", OpFunction::max_pool},
      {"adaptive_max_pool2d_backward", OpFunction::max_pool_backward},
      {"avg_pool2d", OpFunction::average_pool},
      {"avg_pool2d_backward", OpFunction::average_pool_backward},
      {"avg_pool3d", OpFunction::average_pool},
      {"avg_pool3d_backward", OpFunction::average_pool_backward},
      {"_adaptive_avg_pool2d", OpFunction::average_pool},
      {"_adaptive_avg_pool2d_backward", OpFunction::average_pool_backward},
      {"embedding_dense_backward", OpFunction::embedding_backward},
      {"select_backward", OpFunction::slice_backward},
      {"stack", OpFunction::cat},
      {"index_select", OpFunction::gather},
      {"index", OpFunction::gather},
      {"nll_loss_forward", OpFunction::nll},
      {"nll_loss_backward", OpFunction::nll_backward},
      {"nll_loss2d_forward", OpFunction::nll},
      {"nll_loss2d_backward", OpFunction::nll_backward},
      {"mse_loss", OpFunction::mse},
      {"mse_loss_backward", OpFunction::mse_backward},
      {"smooth_l1_loss", OpFunction::huber},
      {"smooth_l1_loss_backward", OpFunction::huber_backward},
      {"huber_loss", OpFunction::huber},
      {"huber_loss_backward", OpFunction::huber_backward},
      {"binary_cross_entropy_with_logits", OpFunction::bce_with_logits},
      {"_thnn_fused_lstm_cell", OpFunction::lstm_cell},
      {"_thnn_fused_lstm_cell_backward_impl", OpFunction::lstm_cell_backward},
      {"_thnn_fused_gru_cell", OpFunction::gru_cell},
      {"_thnn_fused_gru_cell_backward", OpFunction::gru_cell_backward},
      {"add", OpFunction::add},
      {"sub", OpFunction::sub},
      {"mul", OpFunction::mul},
      {"div", OpFunction::div},
      {"neg", OpFunction::neg},
      {"maximum", OpFunction::maximum},
      {"minimum", OpFunction::minimum},
      {"where", OpFunction::where},
      {"masked_fill", OpFunction::masked_fill},
      {"abs", OpFunction::abs},
      {"sqrt", OpFunction::sqrt},
      {"rsqrt", OpFunction::rsqrt},
      {"reciprocal", OpFunction::reciprocal},
      {"exp", OpFunction::exp},
      {"log", OpFunction::log},
      {"log2", OpFunction::log},
      {"log10", OpFunction::log},
      {"pow", OpFunction::pow},
      {"sin", OpFunction::sin},
      {"cos", OpFunction::cos},
      {"erf", OpFunction::erf},
      {"tanh", OpFunction::tanh},
      {"tanh_backward", OpFunction::tanh_backward},
      {"sigmoid", OpFunction::sigmoid},
      {"sigmoid_backward", OpFunction::sigmoid_backward},
      {"softplus", OpFunction::softplus},
      {"softplus_backward", OpFunction::softplus_backward},
      {"silu", OpFunction::silu},
      {"silu_backward", OpFunction::silu_backward},
      {"relu", OpFunction::relu},
      {"clamp", OpFunction::clamp},
      {"dropout", OpFunction::dropout},
      {"fill", OpFunction::fill},
      {"sum", OpFunction::sum},
      {"cumsum", OpFunction::sum},
      {"mean", OpFunction::mean},
      {"var", OpFunction::var},
      {"norm", OpFunction::norm},
      {"logsumexp", OpFunction::logsumexp},
      {"embedding", OpFunction::embedding},
      {"gather", OpFunction::gather},
      {"scatter_add", OpFunction::scatter_add},
      {"cat", OpFunction::cat},
      {"slice_backward", OpFunction::slice_backward},
      {"gelu", OpFunction::gelu},
      {"gelu_backward", OpFunction::gelu_backward},
      {"binary_cross_entropy", OpFunction::binary_cross_entropy},
      {"binary_cross_entropy_backward", OpFunction::binary_cross_entropy_backward},
      {"matmul", OpFunction::matmul},
      {"linear", OpFunction::linear},
      {"convolution", OpFunction::convolution},
      {"max", OpFunction::max},
  };
  return table;
}

// The op's arguments in the order of the function's inputs (docs/trace_format.md, Functions), where the op has another one, or
// where a number may stand in the place of a tensor. Tensors that are not named come behind, as the op has them.
const std::unordered_map<std::string_view, std::vector<std::string_view>>& orders() {
  static const std::unordered_map<std::string_view, std::vector<std::string_view>> table{
      {"addmm", {"mat1", "mat2", "self"}},
      {"addmv", {"mat", "vec", "self"}},
      {"addbmm", {"batch1", "batch2", "self"}},
      {"baddbmm", {"batch1", "batch2", "self"}},
      {"add", {"self", "other"}},
      {"sub", {"self", "other"}},
      {"mul", {"self", "other"}},
      {"div", {"self", "other"}},
      {"pow", {"self", "exponent"}},
      {"where", {"condition", "self", "other"}},
      {"convolution_backward", {"grad_output", "weight", "input"}},
      {"native_batch_norm_backward", {"grad_out", "input", "weight", "save_mean", "save_invstd"}},
      {"batch_norm_backward", {"grad_out", "input", "weight", "save_mean", "save_var"}},
      {"cudnn_batch_norm_backward", {"grad_output", "input", "weight", "save_mean", "save_var"}},
      {"native_layer_norm_backward", {"grad_out", "input", "weight", "mean", "rstd"}},
      {"native_group_norm_backward", {"grad_out", "input", "weight", "mean", "rstd"}},
      {"_fused_rms_norm_backward", {"grad_out", "input", "weight", "rstd"}},
      {"max_pool2d_with_indices_backward", {"grad_output", "indices"}},
      {"max_pool3d_with_indices_backward", {"grad_output", "indices"}},
      {"adaptive_max_pool2d_backward", {"grad_output", "indices"}},
      {"nll_loss_backward", {"grad_output", "target"}},
      {"nll_loss2d_backward", {"grad_output", "target"}},
      {"_thnn_fused_lstm_cell_backward_impl", {"grad_hy", "grad_cy", "workspace", "cx", "cy"}},
  };
  return table;
}
// The order of a convolution's backward whose input takes no gradient.
constexpr std::string_view kOrderForWeight[] = {"grad_output", "input"};

// Ops between processes, by what they write, where that is the same in all that take part.
const std::unordered_map<std::string_view, OpFunction>& collectives() {
  static const std::unordered_map<std::string_view, OpFunction> table{
      {"allreduce", OpFunction::all_reduce},
      {"allreduce_coalesced", OpFunction::all_reduce},
      {"all_reduce", OpFunction::all_reduce},
      {"all_reduce_coalesced", OpFunction::all_reduce},
      {"_allgather_base", OpFunction::all_gather},
      {"allgather", OpFunction::all_gather},
      {"allgather_coalesced", OpFunction::all_gather},
      {"allgather_into_tensor_coalesced", OpFunction::all_gather},
      {"all_gather_into_tensor", OpFunction::all_gather},
      {"all_gather_into_tensor_coalesced", OpFunction::all_gather},
      {"_reduce_scatter_base", OpFunction::reduce_scatter},
      {"reduce_scatter", OpFunction::reduce_scatter},
      {"reduce_scatter_tensor", OpFunction::reduce_scatter},
      {"reduce_scatter_tensor_coalesced", OpFunction::reduce_scatter},
      {"broadcast", OpFunction::broadcast},
  };
  return table;
}

constexpr std::string_view kNotRecorded[] = {"prim", "fsdp", "profiler", "debugprims"};
constexpr std::string_view kCollectives[] = {"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd"};
// Ops of these namespaces that hand on what is there.
constexpr std::string_view kWaits[] = {"wait_tensor", "_wrap_tensor_autograd"};
// Ops that write without reading before.
constexpr std::string_view kOverwrites[] = {"copy",   "fill",      "zero",       "normal", "uniform", "bernoulli", "exponential",
                                            "random", "geometric", "log_normal", "cauchy", "resize",  "set"};
constexpr std::string_view kNoAttributes[] = {"generator",     "device",       "layout", "pin_memory",
                                              "memory_format", "non_blocking", "size"};
constexpr std::string_view kAttention[] = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
                                           "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"};

std::string_view base_name(std::string_view name) {
  constexpr std::string_view kForeach = "_foreach_";
  if (name.starts_with(kForeach)) name.remove_prefix(kForeach.size());
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

// ATen numbers them; a trace has the words of torch.nn.functional.
constexpr std::string_view kReductions[] = {"none", "mean", "sum"};

// An empty text where a trace has none.
std::string text_of(std::string_view parameter, const Argument& argument) {
  switch (argument.kind) {
    case ULPSCOPE_ATEN_INTEGER:
      if (parameter == "reduction")
        return argument.integer >= 0 && argument.integer < 3 ? std::string(kReductions[argument.integer]) : std::string();
      return fmt::format("{}", argument.integer);
    case ULPSCOPE_ATEN_REAL:
      return fmt::format("{:g}", argument.real);
    case ULPSCOPE_ATEN_INTEGERS:
      return fmt::format("{}", fmt::join(argument.integers, argument.integers + argument.count, ","));
    case ULPSCOPE_ATEN_TEXT: {
      std::string text = argument.text;
      std::replace(text.begin(), text.end(), ' ', '_');
      return text;
    }
    default:
      return {};
  }
}

int64_t product_of(std::span<const int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) product *= extent;
  return product;
}

}  // namespace

Schema::Schema(const ulpscope_aten_schema& given) {
  const std::string_view whole = given.name;
  const size_t colons = whole.find("::");
  namespace_ = whole.substr(0, colons);
  name_ = colons == std::string_view::npos ? whole : whole.substr(colons + 2);
  base_ = base_name(name_);
  is_collective_ = contains(kCollectives, namespace_) && !contains(kWaits, name_);
  is_recorded_ = !contains(kNotRecorded, namespace_) && (is_collective_ || !contains(kCollectives, namespace_));
  gathers_ = namespace_ == "fsdp" && name_ == "split_with_sizes_copy";
  joins_ = namespace_ == "fsdp" && name_ == "chunk_cat";
  is_pointwise_ = given.is_pointwise != 0;
  for (uint32_t i = 0; i < given.parameters_count; ++i) {
    const ulpscope_aten_parameter& each = given.parameters[i];
    Parameter parameter{each.name, each.is_tensor != 0, each.is_written != 0, each.is_written != 0 && each.is_keyword != 0,
                        text_of(each.name, each.default_value)};
    // The schemas of collective ops do not say what they write.
    if (namespace_ == "c10d" && parameter.is_tensor) {
      parameter.is_out = parameter.name.starts_with("output");
      parameter.is_written = parameter.is_out || parameter.name == "tensors";
    }
    writes_ = writes_ || parameter.is_written;
    if (!contains(kNoAttributes, parameter.name)) attributes_.push_back(i);
    parameters_.push_back(std::move(parameter));
  }
  is_view_ = !writes_ && (given.returns_alias != 0 || (!is_collective_ && contains(kCollectives, namespace_)));
  is_empty_ = (base_.find("empty") != std::string::npos && base_ != "is_empty") || base_ == "resize" || base_ == "resize_as";
  is_set_ = base_ == "set";
  overwrites_ = contains(kOverwrites, base_);
  // Ops that take a tensor for its shape alone.
  reads_values_ = !base_.ends_with("_like") && !base_.starts_with("new_");
  is_list_ = name_.starts_with("_foreach_") || name_.starts_with("_fused_") || name_.starts_with("_amp_foreach_");
  is_batch_norm_ = base_.find("batch_norm") != std::string::npos;
  const auto& table = is_collective_ ? collectives() : functions();
  if (const auto known = table.find(base_); known != table.end()) plain_function_ = known->second;
  const auto order = orders().find(base_);
  order_ = order_of(order == orders().end() ? std::span<const std::string_view>() : order->second);
  order_for_weight_ = order_of(kOrderForWeight);
  approximate_ = find("approximate");
  transposed_ = find("transposed");
  output_mask_ = find("output_mask");
}

std::optional<size_t> Schema::find(std::string_view parameter) const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].name == parameter) return i;
  return std::nullopt;
}

std::vector<size_t> Schema::order_of(std::span<const std::string_view> first) const {
  std::vector<size_t> order;
  const auto add = [&](size_t index) {
    const Parameter& each = parameters_[index];
    if (!each.is_out && reads_values_ && !(each.is_written && overwrites_)) order.push_back(index);
  };
  for (const std::string_view name : first)
    if (const auto index = find(name)) add(*index);
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].is_tensor && std::find(first.begin(), first.end(), parameters_[i].name) == first.end()) add(i);
  return order;
}

bool Schema::flag(const Bound& bound, std::optional<size_t> parameter) const {
  return parameter && bound.arguments[*parameter].kind == ULPSCOPE_ATEN_INTEGER && bound.arguments[*parameter].integer != 0;
}

bool Schema::gives_gradient_of_input(const Bound& bound) const {
  if (!output_mask_) return true;
  const Argument& mask = bound.arguments[*output_mask_];
  return mask.kind != ULPSCOPE_ATEN_INTEGERS || mask.count == 0 || mask.integers[0] != 0;
}

bool Schema::keeps_rows(const Bound& bound) const {
  constexpr std::string_view kAlongDimensions[] = {"sum",    "mean",   "prod", "var", "std",       "norm",     "linalg_vector_norm",
                                                   "amax",   "amin",   "max",  "min", "logsumexp", "_softmax", "_log_softmax",
                                                   "cumsum", "cumprod"};
  if (is_pointwise_ || plain_function_ == OpFunction::cast || plain_function_ == OpFunction::copy) return true;
  const std::optional<size_t> dimensions = find("dim"), self = find("self");
  if (!contains(kAlongDimensions, base_) || !dimensions || !self || bound.tensor(*self) == nullptr) return false;
  const Argument& given = bound.arguments[*dimensions];
  std::span<const int64_t> along;
  if (given.kind == ULPSCOPE_ATEN_INTEGER) along = {&given.integer, 1};
  if (given.kind == ULPSCOPE_ATEN_INTEGERS) along = {given.integers, given.count};
  const int64_t rank = bound.tensor(*self)->rank;
  return !along.empty() && std::none_of(along.begin(), along.end(), [&](int64_t each) { return each == 0 || each == -rank; });
}

std::optional<double> Schema::number(const Bound& bound, std::string_view parameter) const {
  const auto index = find(parameter);
  if (!index) return std::nullopt;
  const Argument& argument = bound.arguments[*index];
  if (argument.kind == ULPSCOPE_ATEN_INTEGER) return static_cast<double>(argument.integer);
  if (argument.kind == ULPSCOPE_ATEN_REAL) return argument.real;
  return std::nullopt;
}

std::vector<Read> Schema::reads(const Bound& bound) const {
  const bool for_weight = base_ == "convolution_backward" && !gives_gradient_of_input(bound);
  std::vector<Read> found;
  found.reserve(order_.size());
  uint32_t number = 0;
  for (const size_t index : for_weight ? order_for_weight_ : order_) {
    if (bound.arguments[index].kind == ULPSCOPE_ATEN_TENSORS) {
      bound.visit(index, [&](const Tensor& tensor) { found.push_back({index, number++, &tensor}); });
      continue;
    }
    bound.visit(index, [&](const Tensor& tensor) { found.push_back({index, number, &tensor}); });
    ++number;
  }
  return found;
}

OpFunction Schema::function(const Bound& bound) const {
  if (base_ == "gelu" || base_ == "gelu_backward") {
    const bool is_tanh = approximate_ && bound.arguments[*approximate_].kind == ULPSCOPE_ATEN_TEXT &&
                         std::string_view(bound.arguments[*approximate_].text) == "tanh";
    if (is_tanh) return base_ == "gelu" ? OpFunction::gelu_tanh : OpFunction::gelu_tanh_backward;
  }
  if (base_ == "convolution" && flag(bound, transposed_)) return OpFunction::transposed_convolution;
  if (base_ == "convolution_backward") {
    const bool of_input = gives_gradient_of_input(bound);
    if (flag(bound, transposed_))
      return of_input ? OpFunction::transposed_convolution_backward_input : OpFunction::transposed_convolution_backward_weight;
    return of_input ? OpFunction::convolution_backward_input : OpFunction::convolution_backward_weight;
  }
  return plain_function_;
}

std::string_view Schema::name_of_call(OpFunction function) const {
  const OpFunction plain = base_ == "convolution_backward" ? OpFunction::convolution_backward_input : plain_function_;
  if (function == plain) return name_;
  return function != OpFunction::other ? std::string_view(ulpscope::name_of(function)) : "convert";
}

std::optional<ProductShape> Schema::product(const Bound& bound, OpFunction function, const Tensor* output) const {
  const auto shape = [&](std::string_view parameter) -> std::span<const int64_t> {
    const auto index = find(parameter);
    const Tensor* const tensor = index ? bound.tensor(*index) : nullptr;
    return tensor == nullptr ? std::span<const int64_t>() : shape_of(*tensor);
  };
  const auto made = [](int64_t m, int64_t n, int64_t k, int64_t count, bool is_padded) {
    return ProductShape{m, n, k, count, is_padded};
  };
  if (function == OpFunction::convolution || function == OpFunction::transposed_convolution) {
    const auto given = shape("input"), weight = shape("weight");
    if (given.size() < 3 || weight.size() < 3 || output == nullptr || output->rank < 3) return std::nullopt;
    const int64_t groups = std::max<int64_t>(1, static_cast<int64_t>(number(bound, "groups").value_or(1)));
    const int64_t window = product_of(weight.subspan(2));
    if (function == OpFunction::transposed_convolution)
      return made(given[0] * product_of(given.subspan(2)), weight[1] * window, weight[0] / groups, groups, false);
    return made(output->shape[0] * product_of(shape_of(*output).subspan(2)), weight[0] / groups, weight[1] * window, groups, false);
  }
  if (base_ == "mm" || base_ == "addmm") {
    const auto first = shape(base_ == "mm" ? "self" : "mat1"), second = shape("mat2");
    if (first.size() == 2 && second.size() == 2) return made(first[0], second[1], first[1], 1, true);
  } else if (base_ == "bmm" || base_ == "baddbmm" || base_ == "addbmm") {
    const auto first = shape(base_ == "bmm" ? "self" : "batch1"), second = shape(base_ == "bmm" ? "mat2" : "batch2");
    if (first.size() == 3 && second.size() == 3) return made(first[1], second[2], first[2], first[0], true);
  } else if (base_ == "dot") {
    const auto given = shape("self");
    if (given.size() == 1) return made(1, 1, given[0], 1, true);
  } else if (base_ == "mv" || base_ == "addmv") {
    const auto matrix = shape(base_ == "mv" ? "self" : "mat");
    if (matrix.size() == 2) return made(matrix[0], 1, matrix[1], 1, true);
  } else if (base_ == "linear") {
    const auto given = shape("input"), weight = shape("weight");
    if (!given.empty() && weight.size() == 2) return made(product_of(given.first(given.size() - 1)), weight[0], weight[1], 1, true);
  } else if (contains(kAttention, base_)) {
    const auto query = shape("query"), key = shape("key");
    if (query.size() >= 2 && key.size() >= 2)
      return made(query[query.size() - 2], key[key.size() - 2], query.back(), product_of(query.first(query.size() - 2)), true);
  }
  return std::nullopt;
}

std::string Schema::attributes(const Bound& bound) const {
  std::string text;
  for (const size_t index : attributes_) {
    const Parameter& each = parameters_[index];
    const std::string value = text_of(each.name, bound.arguments[index]);
    if (value.empty() || value == each.default_text) continue;
    if (!text.empty()) text += ' ';
    text += each.name + '=' + value;
  }
  return text;
}

uint64_t Schema::hash_of_attributes(const Bound& bound) const {
  uint64_t hash = 0;
  const auto add = [&](uint64_t value) { hash = hash_combine(hash, value); };
  for (const size_t index : attributes_) {
    const Argument& argument = bound.arguments[index];
    add(static_cast<uint64_t>(argument.kind));
    switch (argument.kind) {
      case ULPSCOPE_ATEN_INTEGER:
        add(static_cast<uint64_t>(argument.integer));
        break;
      case ULPSCOPE_ATEN_REAL:
        add(std::bit_cast<uint64_t>(argument.real));
        break;
      case ULPSCOPE_ATEN_INTEGERS:
        for (uint32_t i = 0; i < argument.count; ++i) add(static_cast<uint64_t>(argument.integers[i]));
        break;
      case ULPSCOPE_ATEN_TEXT:
        add(hash_text(argument.text));
        break;
      default:
        break;
    }
  }
  return hash;
}

}  // namespace ulpscope::aten
