#include "ulpscope/core/run/loss.h"

namespace ulpscope {

namespace {

// Of what has the target's shape.
template <Tensor (*loss)(const Tensor&, const Tensor&)>
Tensor by_element(const Tensor& output, const Tensor& target, const LossSettings&) {
  return loss(output, target);
}

Tensor cross_entropy_of_rows(const Tensor& output, const Tensor& target, const LossSettings& settings) {
  const auto [logits, labels] = as_rows(output, target);
  return cross_entropy(logits, labels, settings.label_smoothing, settings.ignore_index);
}

Tensor nll_of_rows(const Tensor& output, const Tensor& target, const LossSettings& settings) {
  const auto [log_probabilities, labels] = as_rows(output, target);
  return nll(log_probabilities, labels, settings.ignore_index);
}

Tensor huber_of(const Tensor& output, const Tensor& target, const LossSettings& settings) {
  return huber(output, target, settings.delta);
}

}  // namespace

std::optional<int64_t> LossSettings::ignored_label() const {
  return type_of(function).targets == TargetKind::labels ? std::optional(ignore_index) : std::nullopt;
}

std::pair<Tensor, Tensor> as_rows(const Tensor& logits, const Tensor& labels) {
  if (logits.rank() < 3) return {logits, labels};
  const int64_t rows[] = {-1, logits.shape(-1)}, all[] = {-1};
  return {reshape(logits, rows), reshape(labels, all)};
}

std::span<const LossType> loss_types() {
  static constexpr std::string_view kCrossEntropyKeys[] = {"label_smoothing", "ignore_index"}, kNllKeys[] = {"ignore_index"},
                                    kHuberKeys[] = {"delta"};
  static constexpr LossType kTypes[] = {
      {"cross_entropy", TargetKind::labels, cross_entropy_of_rows, kCrossEntropyKeys},
      {"nll", TargetKind::labels, nll_of_rows, kNllKeys},
      {"mse", TargetKind::values, by_element<mse>},
      {"l1", TargetKind::values, by_element<l1>},
      {"huber", TargetKind::values, huber_of, kHuberKeys},
      {"bce_with_logits", TargetKind::values, by_element<bce_with_logits>, {}, "it falls without an end"},
      {"binary_cross_entropy",
       TargetKind::values,
       by_element<binary_cross_entropy>,
       {},
       "it is least at 0 or 1, and not at the target"},
      {"kl_div", TargetKind::values, by_element<kl_div>},
  };
  return kTypes;
}

}  // namespace ulpscope
