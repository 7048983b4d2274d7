// Attention, made of the ops that it consists of: each of them is recorded.
#include <cmath>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// Weights of the scores; what is masked has next to none.
Tensor attention_weights(const Tensor& scores, const Tensor& masked, std::optional<double> mask_value) {
  if (!masked) return softmax(scores);
  if (mask_value) return softmax(add(scores, scale(cast(masked, scores.dtype()), *mask_value)));
  // Masked as a part of softmax: scores of -Inf would be recorded as overflows.
  return call("masked_softmax", {scores, expand(masked, scores.shape())});
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& masked,
                                    std::optional<double> mask_value) {
  if (query.rank() < 2 || key.rank() != query.rank() || value.rank() != query.rank() || key.shape(-1) != query.shape(-1) ||
      key.shape(-2) != value.shape(-2))
    throw usage_error("attention: expected query [..., L, E], key [..., S, E] and value [..., S, V], got {}, {} and {}",
                      query.describe(), key.describe(), value.describe());
  const Tensor scores = scale(matmul(query, transpose(key)), 1 / std::sqrt(static_cast<double>(query.shape(-1))));
  return matmul(attention_weights(scores, masked, mask_value), value);
}

Tensor attention_mask(int64_t queries, int64_t keys, bool causal, int64_t padding) {
  const int64_t shape[] = {queries, keys};
  std::vector<double> masked;
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) masked.push_back(j < padding || (causal && j > i));
  return from_host(*context().backend, DType::boolean, shape, masked);
}

}  // namespace ulpscope
