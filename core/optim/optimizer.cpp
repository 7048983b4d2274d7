#include "ulpscope/core/optim/optimizer.h"

#include <array>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

// Zeros, made when a parameter is first updated. Their memory belongs to the run, not to the step.
Tensor zeros_like(const Tensor& tensor, std::string_view state) {
  const OutputHint hint{.role = Role::optimizer_state, .parameter = tensor.body()->parameter, .name = state};
  return call("fill", {tensor}, {{"value", 0.0}}, {.hints = {&hint, 1}});
}

// For all outputs of an op in place.
std::array<OutputHint, 4> of_parameter(const OptimizedParameter& parameter) {
  const OutputHint hint{{}, parameter.name};
  return {hint, hint, hint, hint};
}

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<OptimizedParameter> optimized, double rate, const SgdOptions& options)
      : Optimizer(std::move(optimized), rate, "sgd_update",
                  options.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"}),
        options_(options) {}

 private:
  Attributes attributes(int64_t updates) const override {
    return {{{"momentum", options_.momentum},
             {"dampening", options_.dampening},
             {"weight_decay", options_.weight_decay},
             {"nesterov", options_.nesterov ? 1.0 : 0.0}},
            {{"lr", learning_rate}, {"first", updates == 1 ? 1.0 : 0.0}}};
  }

  SgdOptions options_;
};

// The state: running averages of the gradient and of its square.
class Adam : public Optimizer {
 public:
  Adam(std::vector<OptimizedParameter> optimized, double rate, const AdamOptions& options)
      : Optimizer(std::move(optimized), rate, "adam_update", {"mean", "square"}), options_(options) {}

 private:
  Attributes attributes(int64_t updates) const override {
    return {{{"beta1", options_.beta1},
             {"beta2", options_.beta2},
             {"eps", options_.eps},
             {"weight_decay", options_.weight_decay},
             {"decoupled", options_.decoupled ? 1.0 : 0.0}},
            {{"lr", learning_rate}, {"step", static_cast<double>(updates)}}};
  }

  AdamOptions options_;
};

class Lion : public Optimizer {
 public:
  Lion(std::vector<OptimizedParameter> optimized, double rate, const LionOptions& options)
      : Optimizer(std::move(optimized), rate, "lion_update", {"mean"}), options_(options) {}

 private:
  Attributes attributes(int64_t) const override {
    return {{{"beta1", options_.beta1}, {"beta2", options_.beta2}, {"weight_decay", options_.weight_decay}},
            {{"lr", learning_rate}}};
  }

  LionOptions options_;
};

}  // namespace

const char* name_of(UpdateMath math) { return math == UpdateMath::param ? "param" : "fp32"; }

void Optimizer::zero_grad() {
  for (const OptimizedParameter& parameter : parameters_) {
    parameter.tensor.body()->grad = Tensor();
    if (parameter.model) parameter.model.body()->grad = Tensor();
  }
}

void Optimizer::take_gradients() {
  const PhaseGuard phase(Phase::scaling);
  const NoGrad no_grad;
  for (const OptimizedParameter& parameter : parameters_) {
    if (!parameter.model || !parameter.model.grad()) continue;
    const ModuleScope module(parameter.module);
    const OutputHint hint{Role::accumulated_gradient, parameter.name};
    parameter.tensor.body()->grad =
        call("cast", {parameter.model.grad()}, {}, {.dtype = parameter.tensor.dtype(), .hints = {&hint, 1}});
    parameter.model.body()->grad = Tensor();
  }
}

bool Optimizer::rounds_every_step(const OptimizedParameter& parameter) const {
  return math == UpdateMath::param && weight_role(parameter.tensor.dtype()) == Role::weight;
}

void Optimizer::step() {
  const PhaseGuard phase(Phase::optimizer);
  const NoGrad no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const OptimizedParameter& parameter = parameters_[i];
    if (!parameter.tensor.grad()) continue;
    const ModuleScope module(parameter.module);
    OptimizerState& state = states_[i];
    while (state.tensors.size() < state_names_.size())
      state.tensors.push_back(zeros_like(parameter.tensor, update_states(op_)[state.tensors.size()]));
    ++state.updates;
    Attributes with = attributes(state.updates);
    if (rounds_every_step(parameter)) with.set("stepwise", 1);
    Tensors inputs{parameter.tensor, parameter.tensor.grad()};
    for (const Tensor& tensor : state.tensors) inputs.push_back(tensor);
    const auto hints = of_parameter(parameter);
    dispatch(op_, inputs, with, {.hints = hints});
    if (parameter.model) call("assign", {parameter.model, parameter.tensor}, {}, {.hints = hints});
  }
}

void Optimizer::record_initial_values() const {
  const PhaseGuard phase(Phase::data);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const OptimizedParameter& parameter = parameters_[i];
    const ModuleScope module(parameter.module);
    if (parameter.model) source(parameter.tensor, Role::master_weight, parameter.name);
    for (size_t state = 0; state < states_[i].tensors.size(); ++state)
      source(states_[i].tensors[state], Role::optimizer_state, parameter.name, update_states(op_)[state]);
  }
}

std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedParameter> parameters, double learning_rate, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(parameters), learning_rate, options);
}
std::unique_ptr<Optimizer> make_adam(std::vector<OptimizedParameter> parameters, double learning_rate, const AdamOptions& options) {
  return std::make_unique<Adam>(std::move(parameters), learning_rate, options);
}

std::unique_ptr<Optimizer> make_lion(std::vector<OptimizedParameter> parameters, double learning_rate, const LionOptions& options) {
  return std::make_unique<Lion>(std::move(parameters), learning_rate, options);
}

void for_each_gradient(const Optimizer& optimizer, const std::function<void(const OptimizedParameter&)>& visit) {
  const PhaseGuard phase(Phase::scaling);
  const NoGrad no_grad;
  for (const OptimizedParameter& parameter : optimizer.parameters()) {
    if (!parameter.tensor.grad()) continue;
    const ModuleScope module(parameter.module);
    visit(parameter);
  }
}

Tensor gradient_norm(std::span<const std::unique_ptr<Optimizer>> optimizers) {
  const PhaseGuard phase(Phase::scaling);
  const NoGrad no_grad;
  std::vector<Tensor> gradients;
  for (const auto& optimizer : optimizers)
    for_each_gradient(*optimizer, [&](const OptimizedParameter& parameter) { gradients.push_back(parameter.tensor.grad()); });
  return dispatch(find_op("gradient_norm"), gradients)[0];
}

void clip_gradient_norm(const Optimizer& optimizer, const Tensor& norm, double max_norm) {
  for_each_gradient(optimizer, [&](const OptimizedParameter& parameter) {
    call("clip_norm", {parameter.tensor.grad(), norm}, {{"max_norm", max_norm}}, {.hints = of_parameter(parameter)});
  });
}

void clip_gradient_value(const Optimizer& optimizer, double limit) {
  for_each_gradient(optimizer, [&](const OptimizedParameter& parameter) {
    const OutputHint hint{Role::unscaled_gradient, parameter.name};
    parameter.tensor.body()->grad =
        call("clamp", {parameter.tensor.grad()}, {{"min", -limit}, {"max", limit}}, {.hints = {&hint, 1}});
  });
}

}  // namespace ulpscope
