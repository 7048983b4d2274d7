// Optimizers: they update parameters from their gradients through one op per parameter.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ulpscope/core/engine/dispatch.h"

namespace ulpscope {

// A parameter and the module that it belongs to.
struct OptimizedParameter {
  Tensor tensor;
  const std::string* name;
  const std::string* module;
};

// Named as PyTorch names them.
struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // weight decay apart from the gradient: AdamW
};

class Optimizer {
 public:
  Optimizer(std::vector<OptimizedParameter> parameters, double rate) : learning_rate(rate), parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;

  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  void zero_grad();
  // Updates every parameter that has a gradient, in phase optimizer.
  void step();

  double learning_rate;

 protected:
  virtual void update(size_t index, const OptimizedParameter& parameter) = 0;

 private:
  std::vector<OptimizedParameter> parameters_;
};

std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedParameter> parameters, double learning_rate, const SgdOptions& options);
std::unique_ptr<Optimizer> make_adam(std::vector<OptimizedParameter> parameters, double learning_rate, const AdamOptions& options);

// Visits the parameters that have a gradient, each within its module, in phase scaling and off the tape.
void for_each_gradient(const Optimizer& optimizer, const std::function<void(const OptimizedParameter&)>& visit);
// The Euclidean norm of all gradients together, a scalar; in phase scaling.
Tensor gradient_norm(const Optimizer& optimizer);
// Scales all gradients so that their norm, given, is at most `max_norm`; a NaN norm makes them NaN.
void clip_gradient_norm(const Optimizer& optimizer, const Tensor& norm, double max_norm);
// Keeps every element of the gradients within [-limit, limit].
void clip_gradient_value(const Optimizer& optimizer, double limit);

}  // namespace ulpscope
