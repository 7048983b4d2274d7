#include "ulpscope/core/run/loss.h"

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

Tensor cross_entropy_of_rows(const Tensor& output, const Tensor& target) {
  const auto [logits, labels] = as_rows(output, target);
  return cross_entropy(logits, labels);
}

}  // namespace

std::pair<Tensor, Tensor> as_rows(const Tensor& logits, const Tensor& labels) {
  if (logits.rank() < 3) return {logits, labels};
  const int64_t rows[] = {-1, logits.shape(-1)}, all[] = {-1};
  return {reshape(logits, rows), reshape(labels, all)};
}

std::span<const LossType> loss_types() {
  static constexpr LossType kTypes[] = {
      {"cross_entropy", TargetKind::labels, cross_entropy_of_rows},
      {"mse", TargetKind::values, mse},
  };
  return kTypes;
}

}  // namespace ulpscope
