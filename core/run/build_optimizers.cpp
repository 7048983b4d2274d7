#include "ulpscope/core/run/build_optimizers.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizedParameter> parameters, const OptimizerSettings& settings,
                                          bool by_default) {
  for (OptimizedParameter& parameter : parameters) {
    if (weight_role(parameter.tensor.dtype()) != Role::weight || !settings.master_weights.value_or(by_default)) continue;
    parameter.model = parameter.tensor;
    parameter.tensor = from_host(*context().backend, DType::f32, parameter.model.shape(), to_host(parameter.model));
    parameter.tensor.body()->parameter = parameter.name;
    parameter.tensor.body()->module = parameter.module;
  }
  auto optimizer = row_of(settings.type).make(std::move(parameters), settings);
  optimizer->math = settings.math;
  return optimizer;
}

}  // namespace

std::vector<std::unique_ptr<Optimizer>> build_optimizers(const Experiment& experiment, const Model& model) {
  std::vector<std::vector<OptimizedParameter>> parameters(experiment.optimizers.size() + 1);
  for (const NamedTensor& parameter : model.parameters()) {
    const auto fits = [&](const OptimizerGroup& group) {
      return std::any_of(group.modules.begin(), group.modules.end(),
                         [&](const std::string& pattern) { return glob_match(pattern, *parameter.module); });
    };
    const auto group = std::find_if(experiment.optimizers.begin(), experiment.optimizers.end(), fits);
    const bool found = group != experiment.optimizers.end();
    parameters[found ? static_cast<size_t>(group - experiment.optimizers.begin()) + 1 : 0].push_back(
        {parameter.tensor, parameter.name, parameter.module});
  }
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  const bool masters = row_of(experiment.precision).master_weights;
  if (!parameters[0].empty()) optimizers.push_back(make_optimizer(std::move(parameters[0]), experiment.optimizer, masters));
  for (size_t i = 0; i < experiment.optimizers.size(); ++i) {
    const OptimizerGroup& group = experiment.optimizers[i];
    if (parameters[i + 1].empty())
      throw usage_error("{}: no module with parameters, that no optimizer before it has, matches its patterns", group.place.text);
    optimizers.push_back(make_optimizer(std::move(parameters[i + 1]), experiment.settings_of(group), masters));
  }
  return optimizers;
}

void check_updates(std::span<const std::unique_ptr<Optimizer>> optimizers, ArithmeticRules& arithmetic) {
  for (const auto& optimizer : optimizers) {
    for (const OptimizedParameter& parameter : optimizer->parameters()) {
      const Arithmetic* how = arithmetic.of(optimizer->op(), nullptr, parameter.module);
      if (how == nullptr || !how->rounds_otherwise() || !optimizer->rounds_every_step(parameter)) continue;
      throw usage_error(
          "optimizer.math = \"param\" rounds after every operation, to nearest even, and keeps subnormals; expected optimizer.math "
          "= \"fp32\", which rounds once, or arithmetic.ops.{} with rounding = \"rne\" and subnormals = \"keep\"",
          optimizer->op().name);
    }
  }
}

void check_learning_rates(std::span<const std::unique_ptr<Optimizer>> optimizers) {
  for (const auto& optimizer : optimizers) {
    for (const OptimizedParameter& parameter : optimizer->parameters()) {
      const DTypeInfo& type = info(parameter.tensor.dtype());
      if (!optimizer->rounds_every_step(parameter) || optimizer->learning_rate <= type.format->largest_finite()) continue;
      throw usage_error(
          "optimizer.math = \"param\" takes the learning rate in {}; expected at most {}, or optimizer.math = \"fp32\", got {}",
          type.name, type.format->largest_finite(), optimizer->learning_rate);
    }
  }
}

}  // namespace ulpscope
