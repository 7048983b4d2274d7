#include "ulpscope/analyzers/subject/capture_tree.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace ulpscope {

std::vector<const CaptureRow*> CaptureTree::operands(const CaptureRow& of) const {
  std::vector<const CaptureRow*> found;
  for (const CaptureRow& node : nodes_)
    if (node.parent == static_cast<int64_t>(of.node) && node.node > of.node) found.push_back(&node);
  return found;
}

std::vector<const CaptureRow*> CaptureTree::operands_by_size(const CaptureRow& of) const {
  std::vector<const CaptureRow*> found = operands(of);
  std::unordered_map<int64_t, double> size;
  for (const CaptureRow* const operand : found)
    if (operand->term >= 0) size.try_emplace(operand->term, 1.0).first->second *= std::abs(operand->value);
  const auto rank = [&](const CaptureRow* operand) -> double {
    if (operand->term < 0) return -INFINITY;
    const double is = size[operand->term];
    return operand->term == of.broke_at || std::isnan(is) ? -INFINITY : -is;
  };
  std::stable_sort(found.begin(), found.end(), [&](const CaptureRow* a, const CaptureRow* b) {
    const double x = rank(a), y = rank(b);
    return x < y || (x == y && a->term < b->term);
  });
  return found;
}

const CaptureRow* CaptureTree::operand(int input) const {
  for (const CaptureRow* const node : operands(element()))
    if (node->operand == input && node->term < 0 && node->row.count == 0) return node;
  return nullptr;
}

std::optional<CaptureTree> first_capture(const Snapshot& trace, uint32_t tensor, uint64_t step,
                                         std::optional<uint32_t> micro_batch) {
  std::vector<CaptureRow> nodes;
  for (CaptureRow& node : trace.captures({step, step + 1})) {
    const bool begins = node.node == 0, is_asked = node.tensor == tensor && (!micro_batch || node.micro_batch == *micro_batch);
    if (begins && !nodes.empty()) break;
    if (is_asked && (begins || !nodes.empty())) nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return std::nullopt;
  return CaptureTree(std::move(nodes));
}

}  // namespace ulpscope
