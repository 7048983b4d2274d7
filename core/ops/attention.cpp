// Attention, made of the ops that it consists of: each of them is recorded.
#include <array>
#include <cmath>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// `mask_value` where scores are masked, in the type; nothing where it is not added.
Tensor added_mask(const AttentionOptions& options, DType dtype) {
  return options.masked && options.mask_value ? scale(cast(options.masked, dtype), *options.mask_value) : Tensor();
}

// Weights of the scores; what is masked has next to none.
Tensor attention_weights(const Tensor& scores, const AttentionOptions& options, const Tensor& added, const Attributes& attributes) {
  if (!options.masked) return call("softmax", {scores}, attributes);
  if (added) return call("softmax", {add(scores, added)}, attributes);
  // Masked as a part of softmax: scores of -Inf would be recorded as overflows.
  return call("masked_softmax", {scores, expand(options.masked, scores.shape())}, attributes);
}

// Cast, where it is not of that type; `name` tells apart what is cast of one tensor's parts.
Tensor as(const Tensor& x, DType dtype, std::string_view name = "") {
  const OutputHint hints[] = {{.name = name}};
  return x.dtype() == dtype ? x : call("cast", {x}, {}, {.dtype = dtype, .hints = hints});
}

// PyTorch casts the three to autocast's type, which has no part in what is computed of them.
Tensor math_path(const std::array<Tensor, 3>& inputs, const AttentionOptions& options) {
  const DType dtype = type_of_inputs(find_op("matmul"), inputs), wide = wide_type(dtype);
  const ContextGuard<&Context::autocast> off(nullptr);
  const ContextGuard<&Context::layer_type> in_all_precisions(wide);
  const auto widened = [&](const Tensor& x, std::string_view name) { return as(as(x, dtype, name), wide, name); };
  const double factor = std::sqrt(1 / std::sqrt(static_cast<double>(inputs[0].shape(-1))));
  const Tensor query = scale(widened(inputs[0], "query"), factor), key = scale(transpose(widened(inputs[1], "key")), factor);
  const Tensor mask = added_mask(options, dtype);
  const Tensor weights = attention_weights(matmul(query, key), options, mask ? as(mask, wide, "mask") : mask, {{"safe", 1}});
  return as(matmul(weights, widened(inputs[2], "value")), dtype);
}

}  // namespace

const char* name_of(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::sdpa:
      return "sdpa";
    case AttentionKind::mha:
      return "mha";
    case AttentionKind::explicit_scores:
      return "explicit";
  }
  return "";
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  if (query.rank() < 2 || key.rank() != query.rank() || value.rank() != query.rank() || key.shape(-1) != query.shape(-1) ||
      key.shape(-2) != value.shape(-2))
    throw usage_error("attention: expected query [..., L, E], key [..., S, E] and value [..., S, V], got {}, {} and {}",
                      query.describe(), key.describe(), value.describe());
  if (options.kind == AttentionKind::sdpa) return math_path({query, key, value}, options);
  const double factor = 1 / std::sqrt(static_cast<double>(query.shape(-1)));
  const Tensor scores = options.kind == AttentionKind::mha ? matmul(scale(query, factor), transpose(key))
                                                           : scale(matmul(query, transpose(key)), factor);
  return matmul(attention_weights(scores, options, added_mask(options, scores.dtype()), {}), value);
}

Tensor attention_mask(int64_t queries, int64_t keys, bool causal, int64_t padding) {
  const int64_t shape[] = {queries, keys};
  std::vector<double> masked;
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) masked.push_back(j < padding || (causal && j > i));
  return from_host(*context().backend, DType::boolean, shape, masked);
}

}  // namespace ulpscope
