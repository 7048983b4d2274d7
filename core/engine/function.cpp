#include "ulpscope/core/engine/function.h"

#include <algorithm>
#include <iterator>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/dispatch.h"
#include "ulpscope/core/engine/tape.h"

namespace ulpscope {

namespace {

// Autocast with the policy that was in force at some time. Its casts of parameters are its own.
class KeptAutocast {
 public:
  explicit KeptAutocast(const Autocast* now) {
    if (now != nullptr) policy_ = now->policy();
  }
  std::optional<Autocast> make() const { return policy_ ? std::optional<Autocast>(*policy_) : std::nullopt; }

 private:
  std::optional<AutocastPolicy> policy_;
};

Autocast* pointer_to(std::optional<Autocast>& autocast) { return autocast ? &*autocast : nullptr; }

// A function with the autocast that its forward ran under.
class Applied : public Function {
 public:
  Applied(std::shared_ptr<Function> function, const Autocast* autocast)
      : function_(std::move(function)), autocast_(function_->cast_inputs() ? nullptr : autocast) {}

  Tensors forward(std::span<const Tensor> inputs) override { return function_->forward(inputs); }
  Tensors backward(std::span<const Tensor> gradients) override {
    std::optional<Autocast> autocast = autocast_.make();
    const AutocastScope scope(pointer_to(autocast));
    return function_->backward(gradients);
  }

 private:
  std::shared_ptr<Function> function_;
  KeptAutocast autocast_;
};

void function_backward(BackwardCall& b) {
  Tensors gradients;
  for (size_t i = 0; i < b.output_count(); ++i) gradients.push_back(b.gradient(i));
  Tensors results = b.function().backward(gradients);
  if (results.size() != b.input_count())
    throw failed_error("backward of a function: expected {}, one for each input, got {}", count_of(b.input_count(), "gradient"),
                       results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i] || !b.needs(i)) continue;
    const Tensor& like = b.input_like(i);
    if (!std::equal(like.shape().begin(), like.shape().end(), results[i].shape().begin(), results[i].shape().end()))
      throw failed_error("backward of a function: the gradient of input {}, {}, came as {}", i, like.describe(),
                         results[i].describe());
    if (results[i].dtype() != like.dtype())
      results[i] = call("cast", {results[i]}, {}, {.dtype = like.dtype(), .hints = b.into({i})});
    b.set(i, std::move(results[i]));
  }
}

// Not among all_ops(): a function has no kernel and leaves no row.
const Op& function_op() {
  static const Op op{.name = "function", .inputs = kVariadic, .autocast = AutocastClass::exempt, .backward = function_backward};
  return op;
}

// Of one checkpoint: what is needed to compute `body` again as it was.
class Checkpoint : public Function {
 public:
  explicit Checkpoint(std::function<Tensors(std::span<const Tensor>)> body)
      : body_(std::move(body)),
        autocast_(context().autocast),
        layer_type_(context().layer_type),
        phase_(context().phase),
        module_(context().module) {}

  bool uses_parameters() const override { return true; }

  Tensors forward(std::span<const Tensor> inputs) override {
    for (const Tensor& input : inputs) {
      Tensor leaf = input.detach();
      leaf.set_requires_grad(input.requires_grad());
      inputs_.push_back(std::move(leaf));
    }
    const CallCounters::Notes notes(context().counters, calls_);
    return body_(inputs);
  }

  Tensors backward(std::span<const Tensor> gradients) override {
    std::vector<Observer*> observers;
    std::copy_if(context().observers.begin(), context().observers.end(), std::back_inserter(observers),
                 [](const Observer* observer) { return observer->sees_recomputed(); });
    Tensors outputs;
    {
      const PhaseGuard phase(phase_);
      const ModuleScope module(module_);
      const ContextGuard<&Context::layer_type> layer_type(layer_type_);
      const ContextGuard<&Context::forward_id> no_forward(0);
      const ContextGuard<&Context::forward_op> no_forward_op(nullptr);
      const ContextGuard<&Context::grad_enabled> grad(true);
      const ContextGuard<&Context::recomputing> recomputing(true);
      const ContextGuard<&Context::observers> observed(std::move(observers));
      const ContextGuard<&Context::counters> counters{CallCounters(calls_)};
      std::optional<Autocast> autocast = autocast_.make();
      const AutocastScope scope(pointer_to(autocast));
      outputs = body_(inputs_);
    }
    return backward_within(outputs, gradients, inputs_);
  }

 private:
  std::function<Tensors(std::span<const Tensor>)> body_;
  KeptAutocast autocast_;
  std::optional<DType> layer_type_;
  Phase phase_;
  const std::string* module_;
  std::vector<CallCounters::Call> calls_;  // so that ids and random numbers are those of the first time
  Tensors inputs_;
};

Tensors apply_as(std::shared_ptr<Function> function, std::shared_ptr<Function> kept, std::span<const Tensor> arguments) {
  Context& at = context();
  const uint64_t key = hash_combine(at.module_hash, function_op().hash);
  const uint64_t id = hash_combine(key, at.counters.next(key));
  const bool differentiated =
      at.grad_enabled && (function->uses_parameters() || std::any_of(arguments.begin(), arguments.end(),
                                                                     [](const Tensor& input) { return input.requires_grad(); }));
  Tensors outputs;
  {
    const NoGrad no_grad;
    Tensors inputs(arguments);
    std::optional<AutocastScope> off;
    if (function->cast_inputs() && at.autocast != nullptr) {
      const DType type = *function->cast_inputs();
      for (size_t i = 0; i < inputs.size(); ++i)
        if (is_float(inputs[i].dtype()) && inputs[i].dtype() != DType::f64 && inputs[i].dtype() != type)
          inputs[i] = autocast_input(inputs[i], type, id, i);
      off.emplace(nullptr);
    }
    outputs = function->forward(inputs);
  }
  if (!differentiated) return outputs;
  ++at.calls;
  const Ref<Node> node = make_node(function_op(), id, arguments, outputs.size());
  node->function = std::move(kept);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_float(outputs[i].dtype())) continue;
    outputs[i] = outputs[i].detach();  // it may be an input
    set_output(*node, i, outputs[i]);
  }
  return outputs;
}

}  // namespace

Tensors apply(std::shared_ptr<Function> function, std::span<const Tensor> inputs) {
  auto kept = std::make_shared<Applied>(function, context().autocast);
  return apply_as(std::move(function), std::move(kept), inputs);
}

Tensors checkpoint(std::function<Tensors(std::span<const Tensor>)> body, std::span<const Tensor> inputs) {
  if (!context().grad_enabled) return body(inputs);
  auto function = std::make_shared<Checkpoint>(std::move(body));
  return apply_as(function, function, inputs);
}

}  // namespace ulpscope
