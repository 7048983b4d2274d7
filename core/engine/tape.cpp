#include "ulpscope/core/engine/tape.h"

#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/core/engine/dispatch.h"
#include "ulpscope/core/engine/function.h"

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

// What the gradient of a value is. That of a parameter has its name.
OutputHint gradient_hint(const TensorBody& value) {
  OutputHint hint;
  hint.role = value.parameter ? Role::weight_gradient : Role::activation_gradient;
  hint.parameter = value.parameter;
  if (value.parameter == nullptr) hint.gradient_of = value.value;
  return hint;
}

// A value of which several gradients come in. The op that adds them is named after what made the value, and not after a cast of it
// or what it was last updated by, so that its id depends neither on the precision nor on the step.
struct MeetingPoint {
  uint64_t key;
  uint64_t forward_id;
  const std::string* module;

  explicit MeetingPoint(const TensorBody& leaf)
      : key(leaf.parameter ? hash_text(*leaf.parameter) : hash_combine(leaf.value.op, leaf.value.slot)),
        forward_id(leaf.parameter ? 0 : leaf.value.op),
        module(leaf.module ? leaf.module : context().module) {}
  explicit MeetingPoint(const Node& producer, int slot)
      : key(hash_combine(producer.id, static_cast<uint64_t>(slot))), forward_id(producer.id), module(producer.module) {}

  static MeetingPoint of(const Node::Input& input) {
    const Node::Input& value = uncast(input);
    if (value.leaf) return MeetingPoint(*value.leaf.body());
    const auto& producer = static_cast<const Node&>(*value.node);
    // What a function gives was made by an op within it.
    return producer.function ? MeetingPoint(*value.value.body()) : MeetingPoint(producer, value.slot);
  }
};

// `op` (add or accumulate) of two gradients, in their own type.
Tensor add_gradients(std::string_view op, const Tensor& a, const Tensor& b, const MeetingPoint& at, const OutputHint& hint) {
  const ModuleScope module(at.module);
  const ContextGuard<&Context::forward_id> forward(at.forward_id);
  const ContextGuard<&Context::forward_op> no_forward_op(nullptr);
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
      hold_ = hold_ || node.function;
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
    at.sum = at.sum ? add_gradients("add", at.sum, gradient, MeetingPoint(body), gradient_hint(body)) : std::move(gradient);
    if (--at.uses <= 0 && !hold_) at.store();
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
  bool hold_ = false;  // a function in the graph may use leaves that cannot be seen: nothing is stored before the end
};

bool is_shared(const Tensor& tensor) { return tensor.body()->references > 1 || tensor.storage().references > 1; }

}  // namespace

void Node::release() {
  inputs = {};
  outputs = {};
  gradients = {};
  function.reset();
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
    OutputHint& hint = hints_[hints_.size() - 1];
    hint = gradient_hint(*node_.inputs[input].value.body());
    hint.lowered = node_.inputs[input].lowered;
    hint.gradient_input = static_cast<int32_t>(input);
  }
  return hints_;
}

Ref<Node> make_node(const Op& op, uint64_t id, std::span<const Tensor> inputs, size_t outputs) {
  const Context& at = context();
  Ref<Node> node(new Node);
  node->op = &op;
  node->id = id;
  node->module = at.module;
  node->module_hash = at.module_hash;
  node->sequence = at.calls;
  node->inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Node::Input& kept = node->inputs[i];
    kept.saved = has_bit(op.saves_inputs, i);
    kept.value = inputs[i].detach();
    if (kept.saved) {
      kept.version = inputs[i].storage().version;
    } else {
      kept.value.body()->storage = Ref<Storage>();
      kept.value.body()->view.data = nullptr;
    }
    const TensorBody& body = *inputs[i].body();
    kept.lowered = body.lowered;
    if (body.node) {
      kept.node = body.node;
      kept.slot = body.node_slot;
    } else if (body.requires_grad) {
      kept.leaf = inputs[i];
    }
  }
  node->outputs.resize(outputs);
  node->gradients.resize(outputs);
  return node;
}

void set_output(Node& node, size_t slot, Tensor& output) {
  TensorBody& body = *output.body();
  body.requires_grad = true;
  body.node = Ref<GraphNode>(&node);
  body.node_slot = static_cast<int>(slot);
}

// Nodes in reverse order of execution, from roots with their gradients on.
class Walk {
 public:
  // `inputs`: leaves whose gradients are kept here and are not added to grad().
  Walk(Leaves& leaves, std::span<const Tensor> inputs, bool retain) : leaves_(leaves), inputs_(inputs), retain_(retain) {
    input_gradients_.resize(inputs.size());
  }

  void begin(const Tensor& root, Tensor gradient) {
    if (auto* made_by = static_cast<Node*>(root.body()->node.get())) {
      const int slot = root.body()->node_slot;
      arrive(Ref<Node>(made_by), slot, std::move(gradient), *root.body(), MeetingPoint(*made_by, slot));
    } else {
      give(root, std::move(gradient));
    }
  }

  void run() {
    while (!queue_.empty()) {
      const Ref<Node> node = queue_.top();
      queue_.pop();
      visit(*node);
      if (retain_) {
        for (Tensor& gradient : node->gradients) gradient = {};
      } else {
        node->release();
      }
    }
  }

  const Tensors& input_gradients() const { return input_gradients_; }

 private:
  int input_of(const Tensor& leaf) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].same_as(leaf)) return static_cast<int>(i);
    return -1;
  }

  // A gradient of a leaf.
  void give(const Tensor& leaf, Tensor gradient) {
    const int input = input_of(leaf);
    if (input < 0) return leaves_.add(leaf, std::move(gradient));
    const TensorBody& body = *leaf.body();
    Tensor& sum = input_gradients_[static_cast<size_t>(input)];
    sum = sum ? add_gradients("add", sum, gradient, MeetingPoint(body), gradient_hint(body)) : std::move(gradient);
  }

  // A gradient of output `slot` of a node, which is `value`.
  void arrive(const Ref<Node>& producer, int slot, Tensor gradient, const TensorBody& value, const MeetingPoint& at) {
    if (producer->outputs.empty())
      throw failed_error("backward of {}: the graph was released by an earlier backward (retain_graph keeps it)",
                         producer->op->name);
    Tensor& arrived = producer->gradients[static_cast<size_t>(slot)];
    bool queued = false;
    for (const Tensor& other : producer->gradients) queued = queued || other.defined();
    arrived = arrived ? add_gradients("add", arrived, gradient, at, gradient_hint(value)) : std::move(gradient);
    if (!queued) queue_.push(producer);
  }

  void visit(Node& node) {
    const ModuleScope module(node.module);
    const ContextGuard<&Context::forward_id> forward(node.id);
    const ContextGuard<&Context::forward_op> forward_op(node.op);
    BackwardCall step(node);
    node.op->backward(step);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node::Input& input = node.inputs[i];
      Tensor gradient = std::move(step.gradients_[i]);
      if (!gradient || !input.needs_gradient()) continue;
      // In-place unscaling and clipping need elements that are nobody else's. The copy belongs to the op that shares them out, so
      // that there is one, with the same id, whether or not a cast stands between.
      const Tensor& leaf = uncast(input).leaf;
      if (leaf && input_of(leaf) < 0 && is_shared(gradient)) gradient = call("copy", {gradient}, {}, {.hints = step.into({i})});
      if (input.leaf) {
        give(input.leaf, std::move(gradient));
      } else {
        arrive(Ref<Node>(static_cast<Node*>(input.node.get())), input.slot, std::move(gradient), *input.value.body(),
               MeetingPoint::of(input));
      }
    }
  }

  Leaves& leaves_;
  std::span<const Tensor> inputs_;
  bool retain_;
  Tensors input_gradients_;
  Queue queue_;
};

namespace {
Leaves* leaves_under_way = nullptr;
}

void backward(const Tensor& root, const BackwardOptions& options) {
  if (!root.requires_grad()) throw usage_error("backward: expected a tensor that depends on one that requires a gradient");
  if (root.size() != 1) throw usage_error("backward: expected a scalar, got {}", root.describe());
  const PhaseGuard phase(Phase::backward);
  const NoGrad no_grad;
  const AutocastScope no_autocast(nullptr);

  CallOptions seed_options;
  seed_options.dtype = root.dtype();
  const OutputHint seed{.role = Role::loss, .gradient_of = root.body()->value};
  seed_options.hints = {&seed, 1};
  Tensor one = call("fill", {root.detach()}, {{"value", 1.0}}, seed_options);
  Leaves leaves(static_cast<Node*>(root.body()->node.get()));
  struct UnderWay {
    Leaves* previous;
    explicit UnderWay(Leaves& now) : previous(std::exchange(leaves_under_way, &now)) {}
    ~UnderWay() { leaves_under_way = previous; }
  } const under_way(leaves);
  Walk walk(leaves, {}, options.retain_graph);
  walk.begin(root, std::move(one));
  walk.run();
  leaves.finish();
}

Tensors backward_within(std::span<const Tensor> outputs, std::span<const Tensor> gradients, std::span<const Tensor> inputs) {
  if (leaves_under_way == nullptr) throw failed_error("internal: no backward is under way");
  Walk walk(*leaves_under_way, inputs, false);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (gradients[i] && outputs[i].requires_grad()) walk.begin(outputs[i], gradients[i]);
  walk.run();
  return walk.input_gradients();
}

}  // namespace ulpscope
