// How captured elements came about: each with its operands, and theirs (CaptureRow).
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

class CaptureTree {
 public:
  // The nodes of one capture, node 0 first.
  explicit CaptureTree(std::vector<CaptureRow> nodes) : nodes_(std::move(nodes)) {}

  const CaptureRow& element() const { return nodes_.front(); }
  const std::vector<CaptureRow>& nodes() const { return nodes_; }
  // Of a node, in the order in which its op reads them. An operand has a higher number than what it is an operand of.
  std::vector<const CaptureRow*> operands(const CaptureRow& of) const;
  // First what is no term of a sum, then those of the term at which it broke, then those of the largest products.
  std::vector<const CaptureRow*> operands_by_size(const CaptureRow& of) const;
  // Of the element: single values, no term of a sum, that the op reads as that input; nullptr: none was captured.
  const CaptureRow* operand(int input) const;

 private:
  std::vector<CaptureRow> nodes_;
};

// Of the first element of the tensor that was captured in the step, of one micro-batch or of any.
std::optional<CaptureTree> first_capture(const Snapshot& trace, uint32_t tensor, uint64_t step,
                                         std::optional<uint32_t> micro_batch);

}  // namespace ulpscope
