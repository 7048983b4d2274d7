// Autograd's graph: which op made a node, and whose gradients a node hands on.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ulpscope/recorder/aten/memory.h"

namespace ulpscope::aten {

// The maker of a node.
struct Node {
  uint64_t op = 0;  // its id
  Name module = 0;
  std::optional<ulpscope_value> viewed;  // where it is a view: its base
  bool of_parameter = false;             // it made a parameter in another form, whose gradient is the parameter's
  std::vector<int32_t> inputs;           // for each edge of the node: the place of that input among the function's, or -1
  bool wrote_view = false;               // autograd makes a node more then, behind the op's own
};

// Nodes by their sequence numbers, of this step and the one before.
class Nodes {
 public:
  // The node with that number, if no earlier op made it.
  void add(int64_t sequence, Node node);
  // An op inside of a torch.autograd.Function, whose node has that number; the last op counts.
  void add_custom(int64_t sequence, Node node);
  // The node with that number, whatever else is known of it.
  void set(int64_t sequence, Node node) { new_.insert_or_assign(sequence, std::move(node)); }
  const Node* find(int64_t sequence) const;
  void end_step();

 private:
  const Node* get(int64_t sequence) const;
  int64_t& last_of(int64_t sequence);
  std::unordered_map<int64_t, Node> new_, old_, custom_;
  std::unordered_map<int64_t, int64_t> last_;  // by thread
};

// The gradients that the node that ended last handed on, by their memory.
class HandedOn {
 public:
  void begin(int64_t node) {
    edges_.clear();
    node_ = node;
  }
  void clear() { begin(-1); }
  void add(uint64_t storage, const ulpscope_aten_edge& edge) { edges_.insert_or_assign(storage, edge); }
  const ulpscope_aten_edge* find(uint64_t storage) const {
    const auto at = edges_.find(storage);
    return at == edges_.end() ? nullptr : &at->second;
  }
  int64_t node() const { return node_; }

 private:
  std::unordered_map<uint64_t, ulpscope_aten_edge> edges_;
  int64_t node_ = -1;
};

}  // namespace ulpscope::aten
