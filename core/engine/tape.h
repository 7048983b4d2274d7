// Reverse-mode differentiation: dispatch records a node per op call, backward() walks them in reverse order of execution. Gradients
// are computed with public ops, so they pass dispatch like everything else.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>

#include "ulpscope/core/engine/observer.h"
#include "ulpscope/core/engine/op.h"

namespace ulpscope {

class Function;

// One op call on the tape.
class Node : public GraphNode {
 public:
  // An input as backward may need it. `value` keeps the elements only where the op saves them, else just shape and type.
  struct Input {
    Tensor value;
    uint32_t version = 0;
    bool saved = false;
    Ref<GraphNode> node;  // that made it, or none for a leaf
    int slot = 0;
    Tensor leaf;           // a leaf that requires a gradient
    bool lowered = false;  // its gradient is (TensorBody::lowered)
    bool needs_gradient() const { return node || leaf; }
  };
  struct Output {
    Tensor value;  // off the tape, so that a node does not keep itself alive
    uint32_t version = 0;
    bool saved = false;
  };

  const Op* op = nullptr;
  uint64_t id = 0;
  const std::string* module = nullptr;
  uint64_t module_hash = 0;
  uint64_t sequence = 0;   // order of execution
  uint64_t last_walk = 0;  // the last backward that passed here
  Attributes attributes;
  SmallVector<Input, 5> inputs;
  SmallVector<Output, 5> outputs;
  SmallVector<Tensor, 5> gradients;    // that arrived at the outputs, during backward
  std::shared_ptr<Function> function;  // of an application of one (function.h); its op says how to call it

  void release();  // what it keeps of tensors
};

// What a backward rule sees.
class BackwardCall {
 public:
  explicit BackwardCall(Node& node) : node_(node), gradients_(node.inputs.size()) {}

  const Op& op() const { return *node_.op; }
  const Attributes& attributes() const { return node_.attributes; }
  size_t input_count() const { return node_.inputs.size(); }
  bool needs(size_t input) const { return input < node_.inputs.size() && node_.inputs[input].needs_gradient(); }
  const Tensor& gradient(size_t output = 0) const { return node_.gradients[output]; }  // undefined where none arrived
  // Saved values; an Error that names the op where an in-place op changed them since.
  const Tensor& input(size_t i) const;
  const Tensor& output(size_t i) const;
  // Shape and type of any input; its elements only where it is saved.
  const Tensor& input_like(size_t i) const { return node_.inputs[i].value; }
  size_t output_count() const { return node_.outputs.size(); }
  Function& function() const { return *node_.function; }

  // For CallOptions::hints: the outputs of the call are the gradients of these inputs. Valid until the next call.
  std::span<const OutputHint> into(std::initializer_list<size_t> inputs);
  void set(size_t input, Tensor gradient) { gradients_[input] = std::move(gradient); }

 private:
  friend class Walk;
  Node& node_;
  SmallVector<OutputHint, 5> hints_;
  SmallVector<Tensor, 5> gradients_;
};

// A new node for a call with these inputs, in the current context; set_output() makes a tensor one of its outputs.
Ref<Node> make_node(const Op& op, uint64_t id, std::span<const Tensor> inputs, size_t outputs);
void set_output(Node& node, size_t slot, Tensor& output);

struct BackwardOptions {
  bool retain_graph = false;  // keep what another backward through the same graph needs
};

// Adds d(root)/d(leaf) to the grad() of every leaf that root depends on and that requires a gradient. `root` is a scalar. The graph
// is released on the way, unless it is retained.
void backward(const Tensor& root, const BackwardOptions& options = {});

// For functions (function.h), within a backward: goes on with the gradients of `outputs` through the graph below them, which is
// released. Gives the gradients of `inputs`, which are leaves there; those of other leaves join the walk that is under way.
Tensors backward_within(std::span<const Tensor> outputs, std::span<const Tensor> gradients, std::span<const Tensor> inputs);

}  // namespace ulpscope
