#include "ulpscope/recorder/aten/graph.h"

namespace ulpscope::aten {

void Nodes::add(int64_t sequence, Node node) {
  if (sequence <= last_) return;
  last_ = sequence;
  new_.insert_or_assign(sequence, std::move(node));
}

void Nodes::add_custom(int64_t sequence, Node node) {
  if (sequence > last_) custom_.insert_or_assign(sequence, std::move(node));
}

const Node* Nodes::get(int64_t sequence) const {
  for (const auto* nodes : {&new_, &old_, &custom_})
    if (const auto at = nodes->find(sequence); at != nodes->end()) return &at->second;
  return nullptr;
}

const Node* Nodes::find(int64_t sequence) const {
  if (const Node* const node = get(sequence)) return node;
  const Node* const before = get(sequence - 1);
  return before != nullptr && before->wrote_view ? before : nullptr;
}

void Nodes::end_step() {
  old_ = std::move(new_);
  new_.clear();
  custom_.clear();
}

}  // namespace ulpscope::aten
