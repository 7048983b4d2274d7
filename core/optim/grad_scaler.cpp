#include "ulpscope/core/optim/grad_scaler.h"

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

// A scalar zero that unscaling raises to one.
Tensor make_flag() {
  const ModuleScope no_module(intern(""));
  const OutputHint hint{.role = Role::buffer, .name = "found_inf"};
  return call("fill", {empty(*context().backend, DType::f32, {})}, {{"value", 0.0}}, {.dtype = DType::f32, .hints = {&hint, 1}});
}

}  // namespace

GradScaler::GradScaler(const LossScaleRule& rule) : rule_(rule), state_(initial_state(rule)) {}

Tensor GradScaler::scale_loss(const Tensor& loss) const {
  const PhaseGuard phase(Phase::scaling);
  const OutputHint hint{Role::loss, nullptr};
  return call("scale", {loss}, Attributes({}, {{"factor", state_.scale}, {"loss_scale", state_.scale}}), {.hints = {&hint, 1}});
}

Tensor GradScaler::unscale(Optimizer& optimizer) {
  if (unscaled_.contains(&optimizer))
    throw usage_error("unscale: the optimizer's gradients were already unscaled since the last update");
  // The quotient is formed in FP64 and rounded to FP32, as PyTorch does.
  const Attributes attributes(
      {}, {{"inverse_scale", static_cast<double>(static_cast<float>(1.0 / state_.scale))}, {"loss_scale", state_.scale}});
  Tensor found;
  for_each_gradient(optimizer, [&](const OptimizedParameter& parameter) {
    const Tensor& gradient = parameter.tensor.grad();
    if (gradient.dtype() == DType::f16) {
      throw usage_error("unscale: the gradient of '{}' is FP16, which flushes what the scale kept; expected FP32 master weights",
                        *parameter.name);
    }
    if (!found) found = make_flag();
    const OutputHint of_parameter{{}, parameter.name};
    call("unscale", {gradient, found}, attributes, {.hints = {&of_parameter, 1}});
  });
  if (!found) throw usage_error("unscale: no parameter has a gradient; call backward first");
  unscaled_.emplace(&optimizer, false);
  return found;
}

bool GradScaler::step(Optimizer& optimizer, bool found_nonfinite) {
  const auto entry = unscaled_.find(&optimizer);
  if (entry == unscaled_.end()) throw usage_error("step: the optimizer's gradients were not unscaled");
  if (entry->second) throw usage_error("step: the optimizer was already stepped since the last update");
  entry->second = true;
  found_nonfinite_ = found_nonfinite_ || found_nonfinite;
  if (!found_nonfinite) optimizer.step();
  return !found_nonfinite;
}

void GradScaler::restore(const LossScaleState& state) {
  if (rule_.dynamic) state_ = state;
}

LossScaleChange GradScaler::update() {
  const LossScaleChange change = ulpscope::update(rule_, state_, found_nonfinite_);
  unscaled_.clear();
  found_nonfinite_ = false;
  return change;
}

}  // namespace ulpscope
