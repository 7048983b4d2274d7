#include "ulpscope/trace/op_semantics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace ulpscope {

namespace {

using enum Meaning;
using F = OpFunction;
using K = OpKind;
using R = Reduction;

constexpr std::array kSemantics = std::to_array<OpSemantics>({
    // clang-format off
    {F::other, "other", K::other, R::nothing, 0, {}, {}},
    {F::source, "source", K::source, R::nothing, 0, {value}, {value}},
    {F::cast, "cast", K::cast, R::nothing, kSameValues | kSumsProducts, {value}, {value}},
    {F::copy, "copy", K::other, R::nothing, kSameValues | kSumsProducts, {value}, {value}, "channels_last"},
    {F::quantize, "quantize", K::quantize, R::nothing, 0,
     {value, scale}, {value, scale, inverse_scale, amax}, "margin power_of_two", 1},
    {F::matmul, "matmul", K::product, R::inner_dimension, kSumsProducts,
     {factor, factor}, {value}, "", 0, false, ProductKind::matmul},
    {F::scaled_matmul, "scaled_matmul", K::product, R::inner_dimension, 0,
     {factor, factor, inverse_scale, inverse_scale, bias}, {value}, "", 1, false, ProductKind::matmul},
    {F::linear, "linear", K::product, R::inner_dimension, kSumsProducts,
     {value, weight, bias}, {value}, "", 1, false, ProductKind::linear},
    {F::convolution, "convolution", K::product, R::windows, kSumsProducts, {value, weight, bias}, {value},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups", 1, false, ProductKind::convolution},
    {F::convolution_backward_input, "convolution_backward_input", K::product, R::windows, kSumsProducts,
     {gradient, weight}, {gradient, gradient, bias_gradient},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups height width"},
    {F::convolution_backward_weight, "convolution_backward_weight", K::product, R::windows, kSumsProducts,
     {gradient, value}, {gradient, bias_gradient},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups kernel_y kernel_x bias"},
    {F::transposed_convolution, "transposed_convolution", K::product, R::windows, kSumsProducts, {value, weight, bias}, {value},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups output_padding_y output_padding_x", 1, false,
     ProductKind::transposed_convolution},
    {F::transposed_convolution_backward_input, "transposed_convolution_backward_input", K::product, R::windows, kSumsProducts,
     {gradient, weight}, {gradient, gradient, bias_gradient},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups output_padding_y output_padding_x height width"},
    {F::transposed_convolution_backward_weight, "transposed_convolution_backward_weight", K::product, R::windows, kSumsProducts,
     {gradient, value}, {gradient, bias_gradient},
     "stride_y stride_x padding_y padding_x dilation_y dilation_x groups output_padding_y output_padding_x kernel_y kernel_x bias"},
    {F::attention, "attention", K::product, R::last_dimension, kWeighsRow, {query, key, value, mask}, {value, log_sum_exp}, "", 1},
    {F::batch_norm, "batch_norm", K::normalization, R::all_but_channels, kBounded | kHasVariance,
     {value, weight, bias, running_mean, running_variance}, {value, mean, inverse_deviation, running_mean, running_variance},
     "eps momentum training", 4},
    {F::batch_norm_backward, "batch_norm_backward", K::normalization, R::all_but_channels, 0,
     {gradient, value, weight, mean, inverse_deviation}, {gradient, gradient, bias_gradient}, "eps momentum training"},
    {F::layer_norm, "layer_norm", K::normalization, R::last_dimension, kBounded | kHasVariance,
     {value, weight, bias}, {value, mean, inverse_deviation}, "eps", 2},
    {F::layer_norm_backward, "layer_norm_backward", K::normalization, R::last_dimension, 0,
     {gradient, value, weight, mean, inverse_deviation}, {gradient, gradient, bias_gradient}},
    {F::layer_norm_backward_weight, "layer_norm_backward_weight", K::normalization, R::rows, 0,
     {gradient, value, mean, inverse_deviation}, {gradient, bias_gradient}},
    {F::group_norm, "group_norm", K::normalization, R::groups, kBounded | kHasVariance,
     {value, weight, bias}, {value, mean, inverse_deviation}, "groups eps", 2},
    {F::group_norm_backward, "group_norm_backward", K::normalization, R::groups, 0,
     {gradient, value, weight, mean, inverse_deviation}, {gradient, gradient, bias_gradient}},
    {F::rms_norm, "rms_norm", K::normalization, R::last_dimension, kBounded | kHasVariance,
     {value, weight}, {value, inverse_deviation}, "eps", 1},
    {F::rms_norm_backward, "rms_norm_backward", K::normalization, R::last_dimension, 0,
     {gradient, value, weight, inverse_deviation}, {gradient, gradient}},
    {F::rms_norm_backward_weight, "rms_norm_backward_weight", K::normalization, R::rows, 0,
     {gradient, value, inverse_deviation}, {gradient}},
    {F::softmax, "softmax", K::normalization, R::last_dimension, kBounded | kWeighsRow, {value}, {value}, "safe"},
    {F::softmax_backward, "softmax_backward", K::normalization, R::last_dimension, 0, {gradient, result}, {gradient}},
    {F::masked_softmax, "masked_softmax", K::normalization, R::last_dimension, kBounded | kWeighsRow, {value, mask}, {value}, "safe"},
    {F::log_softmax, "log_softmax", K::normalization, R::last_dimension, kWeighsRow, {value}, {value}},
    {F::log_softmax_backward, "log_softmax_backward", K::normalization, R::last_dimension, 0,
     {gradient, result}, {gradient}},
    {F::add, "add", K::elementwise, R::nothing, kSumsProducts, {addend, addend}, {value}},
    {F::sub, "sub", K::elementwise, R::nothing, kSumsProducts, {addend, subtrahend}, {value}},
    {F::mul, "mul", K::elementwise, R::nothing, kSumsProducts, {factor, factor}, {value}},
    {F::div, "div", K::elementwise, R::nothing, 0, {dividend, divisor}, {value}},
    {F::neg, "neg", K::elementwise, R::nothing, 0, {value}, {value}},
    {F::scale, "scale", K::elementwise, R::nothing, kSumsProducts, {factor}, {value}, "factor loss_scale"},
    {F::maximum, "maximum", K::elementwise, R::nothing, 0, {value, value}, {value}},
    {F::maximum_backward, "maximum_backward", K::elementwise, R::nothing, 0, {gradient, value, value}, {gradient}},
    {F::minimum, "minimum", K::elementwise, R::nothing, 0, {value, value}, {value}},
    {F::minimum_backward, "minimum_backward", K::elementwise, R::nothing, 0, {gradient, value, value}, {gradient}},
    {F::where, "where", K::elementwise, R::nothing, kTakesConstants, {mask, value, value}, {value}},
    {F::where_backward, "where_backward", K::elementwise, R::nothing, 0, {gradient, mask}, {gradient}, "chosen"},
    {F::masked_fill, "masked_fill", K::elementwise, R::nothing, kTakesConstants, {value, mask}, {value}, "value"},
    {F::abs, "abs", K::elementwise, R::nothing, 0, {value}, {value}},
    {F::abs_backward, "abs_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}},
    {F::sqrt, "sqrt", K::elementwise, R::nothing, 0, {value}, {value}},
    {F::sqrt_backward, "sqrt_backward", K::elementwise, R::nothing, 0, {gradient, divisor}, {gradient}},
    {F::rsqrt, "rsqrt", K::elementwise, R::nothing, kBounded, {divisor}, {value}},
    {F::rsqrt_backward, "rsqrt_backward", K::elementwise, R::nothing, 0, {gradient, result}, {gradient}},
    {F::reciprocal, "reciprocal", K::elementwise, R::nothing, kBounded, {divisor}, {value}},
    {F::reciprocal_backward, "reciprocal_backward", K::elementwise, R::nothing, 0, {gradient, result}, {gradient}},
    {F::exp, "exp", K::elementwise, R::nothing, 0, {exponent}, {value}},
    {F::log, "log", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::pow, "pow", K::elementwise, R::nothing, 0, {base, exponent}, {value}},
    {F::pow_backward_base, "pow_backward_base", K::elementwise, R::nothing, 0, {gradient, base, exponent}, {gradient}},
    {F::pow_backward_exponent, "pow_backward_exponent", K::elementwise, R::nothing, 0, {gradient, base, exponent}, {gradient}},
    {F::sin, "sin", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::cos, "cos", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::erf, "erf", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::tanh, "tanh", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::tanh_backward, "tanh_backward", K::elementwise, R::nothing, 0, {gradient, result}, {gradient}},
    {F::sigmoid, "sigmoid", K::elementwise, R::nothing, kBounded, {value}, {value}},
    {F::sigmoid_backward, "sigmoid_backward", K::elementwise, R::nothing, 0, {gradient, result}, {gradient}},
    {F::softplus, "softplus", K::elementwise, R::nothing, 0, {value}, {value}},
    {F::softplus_backward, "softplus_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}},
    {F::silu, "silu", K::elementwise, R::nothing, kMayDrop, {value}, {value}},
    {F::silu_backward, "silu_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}},
    {F::gelu, "gelu", K::elementwise, R::nothing, kMayDrop, {value}, {value}},
    {F::gelu_backward, "gelu_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}},
    {F::gelu_tanh, "gelu_tanh", K::elementwise, R::nothing, kMayDrop, {value}, {value}},
    {F::gelu_tanh_backward, "gelu_tanh_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}},
    {F::relu, "relu", K::elementwise, R::nothing, kMayDrop, {value}, {value}},
    {F::relu_backward, "relu_backward", K::elementwise, R::nothing, 0, {gradient, result}, {gradient}},
    {F::clamp, "clamp", K::elementwise, R::nothing, kBounded | kMayDrop, {value}, {value}, "min max"},
    {F::clamp_backward, "clamp_backward", K::elementwise, R::nothing, 0, {gradient, value}, {gradient}, "min max"},
    {F::dropout, "dropout", K::elementwise, R::nothing, kMayDrop, {value}, {value}, "p seed stream"},
    {F::fill, "fill", K::source, R::nothing, 0, {shape}, {value}, "value", 1},
    {F::accumulate, "accumulate", K::elementwise, R::nothing, kSumsProducts, {state, addend}, {state}},
    {F::unscale, "unscale", K::elementwise, R::nothing, 0,
     {gradient, found_nonfinite}, {gradient, found_nonfinite}, "inverse_scale loss_scale"},
    {F::clip_norm, "clip_norm", K::elementwise, R::nothing, 0, {gradient, norm}, {gradient}, "max_norm"},
    {F::lstm_cell, "lstm_cell", K::elementwise, R::nothing, 0, {value, value, state}, {state, state, gates}},
    {F::lstm_cell_backward, "lstm_cell_backward", K::elementwise, R::nothing, 0,
     {gradient, gradient, gates, state, state}, {gradient, gradient}},
    {F::gru_cell, "gru_cell", K::elementwise, R::nothing, 0, {value, value, state}, {state, gates}},
    {F::gru_cell_backward, "gru_cell_backward", K::elementwise, R::nothing, 0,
     {gradient, gates, value, state}, {gradient, gradient, gradient}},
    {F::sum, "sum", K::reduction, R::dimensions, kSumsProducts, {addend}, {value}, "dims keep"},
    {F::mean, "mean", K::reduction, R::dimensions, kSumsProducts, {addend}, {value}, "dims keep"},
    {F::var, "var", K::reduction, R::dimensions, 0, {value}, {variance, mean}, "dims keep correction"},
    {F::var_backward, "var_backward", K::elementwise, R::nothing, 0, {gradient, value, mean}, {gradient}, "factor"},
    {F::max, "max", K::reduction, R::dimensions, 0, {value}, {value, count}, "dims keep"},
    {F::max_backward, "max_backward", K::elementwise, R::nothing, 0, {gradient, value, result, count}, {gradient}},
    {F::norm, "norm", K::reduction, R::dimensions, 0, {value}, {norm}, "dims keep"},
    {F::norm_backward, "norm_backward", K::elementwise, R::nothing, 0, {gradient, value, divisor}, {gradient}},
    {F::gradient_norm, "gradient_norm", K::reduction, R::all_elements, 0, {gradient}, {norm}, "", 0, true},
    {F::logsumexp, "logsumexp", K::reduction, R::last_dimension, 0, {value}, {log_sum_exp}},
    {F::logsumexp_backward, "logsumexp_backward", K::elementwise, R::nothing, 0, {gradient, value, log_sum_exp}, {gradient}},
    {F::max_pool, "max_pool", K::reduction, R::windows, 0, {value}, {value, index},
     "kernel_y kernel_x stride_y stride_x padding_y padding_x ceil_mode count_include_pad height width"},
    {F::max_pool_backward, "max_pool_backward", K::reduction, R::windows, 0, {gradient, index}, {gradient},
     "kernel_y kernel_x stride_y stride_x padding_y padding_x ceil_mode count_include_pad height width channels_last"},
    {F::average_pool, "average_pool", K::reduction, R::windows, 0, {value}, {value},
     "kernel_y kernel_x stride_y stride_x padding_y padding_x ceil_mode count_include_pad height width"},
    {F::average_pool_backward, "average_pool_backward", K::reduction, R::windows, 0, {gradient}, {gradient},
     "kernel_y kernel_x stride_y stride_x padding_y padding_x ceil_mode count_include_pad height width channels_last"},
    {F::correct_count, "correct_count", K::reduction, R::all_elements, 0, {value, target}, {count}, "ignore_index"},
    {F::amax_history_update, "amax_history_update", K::reduction, R::last_dimension, 0,
     {amax_history, scale, amax}, {amax_history, scale}, "dtype most_recent margin power_of_two"},
    {F::embedding, "embedding", K::other, R::nothing, 0, {weight, index}, {value}},
    {F::embedding_backward, "embedding_backward", K::reduction, R::equal_indices, 0, {gradient, index}, {gradient}, "rows"},
    {F::gather, "gather", K::other, R::nothing, 0, {value, index}, {value}, "dim"},
    {F::gather_backward, "gather_backward", K::reduction, R::equal_indices, 0, {gradient, index}, {gradient}, "dim"},
    {F::scatter_add, "scatter_add", K::reduction, R::equal_indices, 0, {addend, index, addend}, {value}, "dim"},
    {F::cat, "cat", K::other, R::nothing, 0, {value}, {value}, "dim", 0, true},
    {F::slice_backward, "slice_backward", K::other, R::nothing, 0, {gradient}, {gradient}, "dim start step whole"},
    {F::cross_entropy, "cross_entropy", K::loss, R::all_elements, 0,
     {value, target}, {loss, log_sum_exp}, "reduction label_smoothing ignore_index"},
    {F::cross_entropy_backward, "cross_entropy_backward", K::loss, R::nothing, 0,
     {gradient, value, target, log_sum_exp}, {gradient}, "label_smoothing ignore_index"},
    {F::nll, "nll", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction ignore_index"},
    {F::nll_backward, "nll_backward", K::loss, R::nothing, 0, {gradient, target}, {gradient}, "ignore_index classes"},
    {F::mse, "mse", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction"},
    {F::mse_backward, "mse_backward", K::loss, R::nothing, 0, {gradient, value, target}, {gradient}, "factor"},
    {F::l1, "l1", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction"},
    {F::l1_backward, "l1_backward", K::loss, R::nothing, 0, {gradient, value, target}, {gradient}, "factor"},
    {F::huber, "huber", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction delta"},
    {F::huber_backward, "huber_backward", K::loss, R::nothing, 0, {gradient, value, target}, {gradient}, "factor delta"},
    {F::bce_with_logits, "bce_with_logits", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction"},
    {F::bce_with_logits_backward, "bce_with_logits_backward", K::loss, R::nothing, 0,
     {gradient, value, target}, {gradient}, "factor"},
    {F::binary_cross_entropy, "binary_cross_entropy", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction"},
    {F::binary_cross_entropy_backward, "binary_cross_entropy_backward", K::loss, R::nothing, 0,
     {gradient, value, target}, {gradient}, "factor"},
    {F::kl_div, "kl_div", K::loss, R::all_elements, 0, {value, target}, {loss}, "reduction"},
    {F::kl_div_backward, "kl_div_backward", K::loss, R::nothing, 0, {gradient, value, target}, {gradient}, "factor"},
    {F::sgd_update, "sgd_update", K::update, R::nothing, 0, {parameter, gradient, momentum}, {parameter, momentum, update},
     "lr momentum dampening weight_decay nesterov first stepwise", 1},
    {F::adam_update, "adam_update", K::update, R::nothing, 0, {parameter, gradient, first_moment, second_moment},
     {parameter, first_moment, second_moment, update}, "lr beta1 beta2 eps weight_decay decoupled step stepwise"},
    {F::lion_update, "lion_update", K::update, R::nothing, 0,
     {parameter, gradient, momentum}, {parameter, momentum, update}, "lr beta1 beta2 weight_decay stepwise"},
    {F::assign, "assign", K::update, R::nothing, 0, {parameter, value}, {parameter}},
    {F::all_reduce, "all_reduce", K::collective, R::ranks, kSumsProducts, {addend}, {value}},
    {F::all_gather, "all_gather", K::collective, R::nothing, 0, {value}, {value}},
    {F::reduce_scatter, "reduce_scatter", K::collective, R::ranks, kSumsProducts, {addend}, {value}},
    {F::broadcast, "broadcast", K::collective, R::nothing, 0, {value}, {value}},
    // clang-format on
});

static_assert(kSemantics.size() == kOpFunctions);
static_assert(
    [] {
      for (size_t i = 0; i < kSemantics.size(); ++i)
        if (kSemantics[i].function != static_cast<OpFunction>(i)) return false;
      return true;
    }(),
    "as OpFunction lists them");

std::optional<uint32_t> first_place(std::span<const Meaning> meanings, Meaning meaning) {
  const auto found = std::find(meanings.begin(), meanings.end(), meaning);
  return found == meanings.end() ? std::nullopt : std::optional(static_cast<uint32_t>(found - meanings.begin()));
}

}  // namespace

const OpSemantics& semantics_of(OpFunction function) { return kSemantics[static_cast<size_t>(function)]; }

OpFunction function_named(std::string_view name) {
  const auto found = std::find_if(kSemantics.begin(), kSemantics.end(), [&](const OpSemantics& row) { return row.name == name; });
  return found == kSemantics.end() ? OpFunction::other : found->function;
}

bool reads_as(OpFunction function, uint64_t input, Meaning meaning) {
  const OpSemantics& semantics = semantics_of(function);
  const std::span<const Meaning> inputs = semantics.inputs;
  if (semantics.last_repeats) input = std::min<uint64_t>(input, inputs.size() - 1);
  return input < inputs.size() && inputs[input] == meaning;
}
bool makes_as(OpFunction function, uint64_t slot, Meaning meaning) {
  const std::span<const Meaning> outputs = semantics_of(function).outputs;
  return slot < outputs.size() && outputs[slot] == meaning;
}
std::optional<uint32_t> input_of(OpFunction function, Meaning meaning) {
  return first_place(semantics_of(function).inputs, meaning);
}
std::optional<uint32_t> slot_of(OpFunction function, Meaning meaning) {
  return first_place(semantics_of(function).outputs, meaning);
}

std::string merged_attributes(std::string_view first, std::string_view second) {
  if (first == second) return std::string(first);
  std::vector<std::pair<std::string_view, std::string_view>> merged;
  const auto add = [&](std::string_view text, bool is_second) {
    while (!text.empty()) {
      const size_t space = std::min(text.find(' '), text.size());
      const std::string_view part = text.substr(0, space);
      text.remove_prefix(std::min(space + 1, text.size()));
      const size_t equals = part.find('=');
      const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
      const auto known = std::find_if(merged.begin(), merged.end(), [&](const auto& each) { return each.first == name; });
      if (known == merged.end())
        merged.emplace_back(name, is_second ? "varies" : value);
      else if (known->second != value)
        known->second = "varies";
    }
  };
  add(first, false);
  add(second, true);
  std::string text;
  for (const auto& [name, value] : merged) {
    const std::string given = fmt::format("{}=", name);
    const bool is_in_second = second.starts_with(given) || second.find(" " + given) != std::string_view::npos;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", given, is_in_second ? value : "varies");
  }
  return text;
}

}  // namespace ulpscope
