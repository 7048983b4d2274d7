#include "ulpscope/core/engine/tape.h"

#include <queue>
#include <unordered_map>
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

// The input itself, or what autocast cast it from.
const Node::Input& uncast(const Node::Input& input) {
  static const Op& cast = find_op("cast");
  const Node::Input* value = &input;
  while (value->node) {
    const auto& producer = static_cast<const Node&>(*value->node);
    if (producer.op != &cast || producer.inputs.empty()) break;
    value = &producer.inputs[0];
  }
  return *value;
}

Role gradient_role(const TensorBody& value) { return value.parameter ? Role::weight_gradient : Role::activation_gradient; }

// A value of which several gradients come in. The op that adds them is named after what made the value, and not after a cast of it
// or what it was last updated by, so that its id depends neither on the precision nor on the step.
struct MeetingPoint {
  uint64_t key;
  uint64_t forward_id;
  const std::string* module;

  explicit MeetingPoint(const TensorBody& leaf)
      : key(leaf.parameter ? hash_text(*leaf.parameter) : hash_combine(leaf.value.op, leaf.value.slot)),
        forward_id(0),
        module(leaf.module ? leaf.module : context().module) {}
  explicit MeetingPoint(const Node& producer, int slot)
      : key(hash_combine(producer.id, static_cast<uint64_t>(slot))), forward_id(producer.id), module(producer.module) {}

  static MeetingPoint of(const Node::Input& input) {
    const Node::Input& value = uncast(input);
    return value.leaf ? MeetingPoint(*value.leaf.body()) : MeetingPoint(static_cast<const Node&>(*value.node), value.slot);
  }
};

// `op` (add or accumulate) of two gradients, in their own type.
Tensor add_gradients(std::string_view op, const Tensor& a, const Tensor& b, const MeetingPoint& at, const OutputHint& hint) {
  const ModuleScope module(at.module);
  const ContextGuard<&Context::forward_id> forward(at.forward_id);
  const uint64_t key = hash_combine(hash_text(op), at.key);
  CallOptions options;
  options.hints = {&hint, 1};
  options.id = hash_combine(key, context().counters.next(key));
  return call(op, {a, b}, {}, options);
}

// The gradients of the leaves below a root. What comes in for one leaf is added up as at any other value, so that the op is the
// same whether or not a cast stands between, and only the sum is accumulated into what an earlier backward left.
class Leaves {
 public:
  explicit Leaves(Node* root) {
    if (root == nullptr) return;
    static uint64_t walks = 0;
    ++walks;
    std::vector<Node*> open{root};
    root->last_walk = walks;
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Node::Input& input : node.inputs) {
        if (input.leaf) ++arriving(input.leaf).uses;
        auto* producer = static_cast<Node*>(input.node.get());
        if (producer == nullptr || producer->last_walk == walks) continue;
        producer->last_walk = walks;
        open.push_back(producer);
      }
    }
  }

  void add(const Tensor& leaf, Tensor gradient) {
    if (gradient.dtype() != leaf.dtype())
      throw failed_error("backward: the gradient of a {} leaf came as {}", leaf.describe(), gradient.describe());
    Arriving& at = arriving(leaf);
    TensorBody& body = *leaf.body();
    at.sum = at.sum ? add_gradients("add", at.sum, gradient, MeetingPoint(body), {gradient_role(body), body.parameter})
                    : std::move(gradient);
    if (--at.uses <= 0) at.store();
  }

  // Of the leaves that some rules give no gradient.
  void finish() {
    for (Arriving& at : arriving_)
      if (at.sum) at.store();
  }

 private:
  struct Arriving {
    Tensor leaf, sum;
    int uses = 0;  // by ops that have not given their gradient yet

    void store() {
      TensorBody& body = *leaf.body();
      if (body.grad) {
        add_gradients("accumulate", body.grad, sum, MeetingPoint(body), {{}, body.parameter});
        sum = {};
      } else {
        body.grad = std::move(sum);
      }
    }
  };

  Arriving& arriving(const Tensor& leaf) {
    const auto [found, added] = index_.try_emplace(leaf.body(), arriving_.size());
    if (added) arriving_.push_back({leaf, {}, 0});
    return arriving_[found->second];
  }

  std::vector<Arriving> arriving_;
  std::unordered_map<const TensorBody*, size_t> index_;
};

bool is_shared(const Tensor& tensor) { return tensor.body()->references > 1 || tensor.storage().references > 1; }

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
  hints_ = {};
  for (const size_t input : inputs) {
    hints_.push_back({});
    if (input >= node_.inputs.size()) continue;
    const TensorBody& value = *node_.inputs[input].value.body();
    hints_[hints_.size() - 1] = {gradient_role(value), value.parameter, node_.inputs[input].lowered};
  }
  return hints_;
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
  Tensor one = call("fill", {root.detach()}, {{"value", 1.0}}, options);
  auto* made_by = static_cast<Node*>(root.body()->node.get());
  Leaves leaves(made_by);
  if (made_by == nullptr) {
    leaves.add(root, std::move(one));
    return;
  }
  Queue queue;
  Ref<Node> first(made_by);
  first->gradients[static_cast<size_t>(root.body()->node_slot)] = std::move(one);
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
      // In-place unscaling and clipping need elements that are nobody else's. The copy belongs to the op that shares them out, so
      // that there is one, with the same id, whether or not a cast stands between.
      if (uncast(input).leaf && is_shared(gradient)) gradient = call("copy", {gradient}, {}, {.hints = step.into({i})});
      if (input.leaf) {
        leaves.add(input.leaf, std::move(gradient));
        continue;
      }
      Ref<Node> producer(static_cast<Node*>(input.node.get()));
      Tensor& arrived = producer->gradients[static_cast<size_t>(input.slot)];
      bool queued = false;
      for (const Tensor& other : producer->gradients) queued = queued || other.defined();
      if (arrived) {
        const TensorBody& value = *input.value.body();
        arrived = add_gradients("add", arrived, gradient, MeetingPoint::of(input), {gradient_role(value), value.parameter});
      } else {
        arrived = std::move(gradient);
      }
      if (!queued) queue.push(producer);
    }
    node->release();
  }
  leaves.finish();
}

}  // namespace ulpscope
