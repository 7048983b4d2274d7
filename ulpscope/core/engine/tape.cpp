#include "ulpscope/core/engine/tape.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/core/engine/dispatch.h"

namespace ulpscope {

namespace {

struct RunsLater {
  bool operator()(const Ref<Node>& a, const Ref<Node>& b) const { return a->sequence < b->sequence; }
};
using Queue = std::priority_queue<Ref<Node>, std::vector<Ref<Node>>, RunsLater>;

void check_version(const Node& node, const Tensor& value, uint32_t version, std::string_view what, size_t index) {
  if (value.storage().version != version)
    throw failed_error("backward of {} in module '{}': {} {} was changed in place after the forward pass", node.op->name,
                       *node.module, what, index);
}

// `op` (add or accumulate) of two gradients of the value `value`, in their own type. Named after the value, not after a cast of it,
// so that its id does not depend on the precision.
Tensor add_gradients(std::string_view op, const Tensor& a, const Tensor& b, ValueKey value, const OutputHint& hint) {
  Context& ctx = context();
  const uint64_t key = hash_combine(hash_combine(hash_text(op), value.op), value.slot);
  CallOptions options;
  options.hints = {&hint, 1};
  options.id = hash_combine(key, ctx.counters.next(key));
  return call(op, {a, b}, {}, options);
}

// The leaves that a backward reached so far. Gradients that meet within one backward are added as at any other value, so that their
// op is the same whether or not a cast stands between; only an earlier backward's are accumulated in place.
using Leaves = std::vector<const TensorBody*>;

void add_to_leaf(const Tensor& leaf, const Tensor& gradient, Leaves& reached) {
  TensorBody& body = *leaf.body();
  if (gradient.dtype() != leaf.dtype())
    throw failed_error("backward: the gradient of a {} leaf came as {}", leaf.describe(), gradient.describe());
  const bool again = std::find(reached.begin(), reached.end(), &body) != reached.end();
  if (!again) reached.push_back(&body);
  if (body.grad && again) {
    const OutputHint hint{body.parameter ? Role::weight_gradient : Role::activation_gradient, body.parameter};
    body.grad = add_gradients("add", body.grad, gradient, body.uncast_value, hint);
    return;
  }
  const OutputHint hint{Role::accumulated_gradient, body.parameter};
  if (body.grad) {
    add_gradients("accumulate", body.grad, gradient, body.uncast_value, hint);
  } else {
    // In-place unscaling and clipping need elements that are nobody else's.
    CallOptions options;
    options.hints = {&hint, 1};
    const bool shared = gradient.body()->references > 1 || gradient.storage().references > 1;
    body.grad = shared ? call("copy", {gradient}, {}, options) : gradient;
  }
}

}  // namespace

void Node::release() {
  inputs = {};
  outputs = {};
  gradients = {};
}

const Tensor& BackwardCall::input(size_t i) const {
  const Node::Input& kept = node_.inputs[i];
  check_version(node_, kept.value, kept.version, "input", i);
  return kept.value;
}

const Tensor& BackwardCall::output(size_t i) const {
  const Node::Output& kept = node_.outputs[i];
  check_version(node_, kept.value, kept.version, "output", i);
  return kept.value;
}

std::span<const OutputHint> BackwardCall::into(std::initializer_list<size_t> inputs) {
  size_t count = 0;
  for (const size_t input : inputs) {
    const std::string* parameter = input < node_.inputs.size() ? node_.inputs[input].value.body()->parameter : nullptr;
    hints_[count++] = {parameter ? Role::weight_gradient : Role::activation_gradient, parameter};
  }
  return {hints_.data(), count};
}

void backward(const Tensor& root) {
  if (!root.requires_grad()) throw usage_error("backward: expected a tensor that depends on one that requires a gradient");
  if (root.size() != 1) throw usage_error("backward: expected a scalar, got {}", root.describe());
  const PhaseGuard phase(Phase::backward);
  const NoGrad no_grad;
  const AutocastScope no_autocast(nullptr);

  CallOptions options;
  options.dtype = root.dtype();
  const OutputHint seed{Role::loss, nullptr};
  options.hints = {&seed, 1};
  const Tensor one = call("fill", {root.detach()}, {{"value", 1.0}}, options);
  if (root.is_leaf()) {
    Leaves reached;
    add_to_leaf(root, one, reached);
    return;
  }
  Leaves reached;
  Queue queue;
  Ref<Node> first(static_cast<Node*>(root.body()->node.get()));
  first->gradients[static_cast<size_t>(root.body()->node_slot)] = one;
  queue.push(first);

  while (!queue.empty()) {
    const Ref<Node> node = queue.top();
    queue.pop();
    if (node->inputs.empty()) throw failed_error("backward of {}: the graph was released by an earlier backward", node->op->name);
    const ModuleScope module(node->module);
    const ContextGuard<&Context::forward_id> forward(node->id);
    BackwardCall step(*node);
    node->op->backward(step);
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const Node::Input& input = node->inputs[i];
      Tensor gradient = std::move(step.gradients_[i]);
      if (!gradient || !input.needs_gradient()) continue;
      if (input.leaf) {
        add_to_leaf(input.leaf, gradient, reached);
        continue;
      }
      Ref<Node> producer(static_cast<Node*>(input.node.get()));
      Tensor& arrived = producer->gradients[static_cast<size_t>(input.slot)];
      bool queued = false;
      for (const Tensor& other : producer->gradients) queued = queued || other.defined();
      if (arrived) {
        const TensorBody& value = *input.value.body();
        const OutputHint hint{value.parameter ? Role::weight_gradient : Role::activation_gradient, value.parameter};
        arrived = add_gradients("add", arrived, gradient, value.uncast_value, hint);
      } else {
        arrived = std::move(gradient);
      }
      if (!queued) queue.push(producer);
    }
    node->release();
  }
}

}  // namespace ulpscope
