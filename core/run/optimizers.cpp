#include "ulpscope/core/run/optimizers.h"

namespace ulpscope {

namespace {

std::unique_ptr<Optimizer> sgd(std::vector<OptimizedParameter> parameters, const OptimizerSettings& s) {
  return make_sgd(std::move(parameters), s.learning_rate, {s.momentum, s.dampening, s.effective_weight_decay(), s.nesterov});
}

template <bool decoupled>
std::unique_ptr<Optimizer> adam(std::vector<OptimizedParameter> parameters, const OptimizerSettings& s) {
  return make_adam(std::move(parameters), s.learning_rate,
                   {s.beta1, s.effective_beta2(), s.eps, s.effective_weight_decay(), decoupled});
}

std::unique_ptr<Optimizer> lion(std::vector<OptimizedParameter> parameters, const OptimizerSettings& s) {
  return make_lion(std::move(parameters), s.learning_rate, {s.beta1, s.effective_beta2(), s.effective_weight_decay()});
}

}  // namespace

std::span<const OptimizerRow> optimizer_rows() {
  static constexpr std::string_view kSgdKeys[] = {"momentum", "dampening", "nesterov"}, kAdamKeys[] = {"beta1", "beta2", "eps"},
                                    kLionKeys[] = {"beta1", "beta2"};
  static constexpr OptimizerRow kRows[] = {
      {.name = "sgd", .keys = kSgdKeys, .weight_decay = 0, .beta2 = 0.999, .make = sgd},
      {.name = "adam", .keys = kAdamKeys, .weight_decay = 0, .beta2 = 0.999, .make = adam<false>},
      {.name = "adamw", .keys = kAdamKeys, .weight_decay = 0.01, .beta2 = 0.999, .make = adam<true>},
      {.name = "lion", .keys = kLionKeys, .weight_decay = 0, .beta2 = 0.99, .make = lion},
  };
  return kRows;
}

double OptimizerSettings::effective_weight_decay() const { return weight_decay.value_or(row_of(type).weight_decay); }
double OptimizerSettings::effective_beta2() const { return beta2.value_or(row_of(type).beta2); }

}  // namespace ulpscope
