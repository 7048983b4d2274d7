// Optimizers: they update parameters from their gradients through one op per parameter.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/core/engine/dispatch.h"

namespace ulpscope {

// A parameter and the module that it belongs to.
struct OptimizedParameter {
  Tensor tensor;  // what is updated
  const std::string* name;
  const std::string* module;
  Tensor model = {};  // where `tensor` is an FP32 master weight: the 16-bit parameter that the model computes with
};

// How a 16-bit parameter is updated: with a rounding to its type after every tensor operation, as PyTorch has it (updates.h), or in
// FP32 and rounded once.
enum class UpdateMath : uint8_t { param, fp32 };
const char* name_of(UpdateMath math);

// Named as PyTorch names them.
struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // weight decay apart from the gradient: AdamW
};

// X. Chen et al., Symbolic Discovery of Optimization Algorithms, 2023.
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

// What an optimizer keeps of a parameter besides it.
struct OptimizerState {
  SmallVector<Tensor, 2> tensors;  // of the parameter's shape and type, named by state_names(); none before the first update
  int64_t updates = 0;             // that the parameter took
};

class Optimizer {
 public:
  // `op` is the name of its op, which takes weight, gradient and the states.
  Optimizer(std::vector<OptimizedParameter> parameters, double rate, std::string_view op, std::vector<std::string> state_names)
      : learning_rate(rate),
        parameters_(std::move(parameters)),
        op_(find_op(op)),
        state_names_(std::move(state_names)),
        states_(parameters_.size()) {}
  virtual ~Optimizer() = default;

  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  const Op& op() const { return op_; }
  // Whether the update of a parameter rounds after every tensor operation.
  bool rounds_every_step(const OptimizedParameter& parameter) const;
  void zero_grad();
  // Gives master weights the gradients of the model's parameters, in FP32. In phase scaling, before anything else is done to them.
  void take_gradients();
  // Updates every parameter that has a gradient, in phase optimizer, and the model's copies of master weights.
  void step();

  const std::vector<std::string>& state_names() const { return state_names_; }  // "momentum"; "mean", "square"
  // One per parameter, in their order.
  std::span<OptimizerState> states() { return states_; }
  // Enters the state and master weights into the recording, as outputs of the op source.
  void record_initial_values() const;

  // Of the op, for a parameter with `updates` updates, this one included.
  virtual Attributes attributes(int64_t updates) const = 0;

  double learning_rate;
  UpdateMath math = UpdateMath::param;

 private:
  std::vector<OptimizedParameter> parameters_;
  const Op& op_;
  std::vector<std::string> state_names_;
  std::vector<OptimizerState> states_;
};

std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedParameter> parameters, double learning_rate, const SgdOptions& options);
std::unique_ptr<Optimizer> make_adam(std::vector<OptimizedParameter> parameters, double learning_rate, const AdamOptions& options);

std::unique_ptr<Optimizer> make_lion(std::vector<OptimizedParameter> parameters, double learning_rate, const LionOptions& options);

// Visits the parameters that have a gradient, each within its module, in phase scaling and off the tape.
void for_each_gradient(const Optimizer& optimizer, const std::function<void(const OptimizedParameter&)>& visit);
// The Euclidean norm of the gradients of all optimizers together, a scalar; in phase scaling.
Tensor gradient_norm(std::span<const std::unique_ptr<Optimizer>> optimizers);
// Scales all gradients so that their norm, given, is at most `max_norm`; a NaN norm makes them NaN.
void clip_gradient_norm(const Optimizer& optimizer, const Tensor& norm, double max_norm);
// Keeps every element of the gradients within [-limit, limit].
void clip_gradient_value(const Optimizer& optimizer, double limit);

}  // namespace ulpscope
