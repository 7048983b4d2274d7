#include "ulpscope/recorder/aten/graph.h"

namespace ulpscope::aten {

int64_t& Nodes::last_of(int64_t sequence) { return last_.try_emplace(sequence >> ULPSCOPE_ATEN_SEQUENCE_BITS, -1).first->second; }

void Nodes::add(int64_t sequence, Node node) {
  int64_t& last = last_of(sequence);
  if (sequence <= last) return;
  last = sequence;
  new_.insert_or_assign(sequence, std::move(node));
}

void Nodes::add_custom(int64_t sequence, Node node) {
  if (sequence > last_of(sequence)) custom_.insert_or_assign(sequence, std::move(node));
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
