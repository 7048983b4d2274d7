// Attention, made of the ops that it consists of: each of them is recorded.
#include <cmath>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& masked) {
  if (query.rank() < 2 || key.rank() != query.rank() || value.rank() != query.rank() || key.shape(-1) != query.shape(-1) ||
      key.shape(-2) != value.shape(-2))
    throw usage_error("attention: expected query [..., L, E], key [..., S, E] and value [..., S, V], got {}, {} and {}",
                      query.describe(), key.describe(), value.describe());
  const Tensor scores = scale(matmul(query, transpose(key)), 1 / std::sqrt(static_cast<double>(query.shape(-1))));
  // Masked as a part of softmax: scores of -Inf would be recorded as overflows.
  const Tensor weights = masked ? call("masked_softmax", {scores, expand(masked, scores.shape())}) : softmax(scores);
  return matmul(weights, value);
}

Tensor causal_mask(int64_t queries, int64_t keys) {
  const int64_t shape[] = {queries, keys};
  std::vector<double> later;
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) later.push_back(j > i);
  return from_host(*context().backend, DType::boolean, shape, later);
}

}  // namespace ulpscope
