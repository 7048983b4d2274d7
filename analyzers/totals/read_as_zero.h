// Which tensors' subnormals are read as zero, by an op of the run: then they are as good as flushed by their own rounding.
#pragma once

#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

class ReadAsZero {
 public:
  // `what_if`: the format that computed gradients are in; nullptr: their own.
  ReadAsZero(const AnalysisContext& context, const FloatFormat* what_if);
  // In that part of the trace.
  bool contains(size_t part, uint32_t tensor) const { return by_part_[part][tensor]; }

 private:
  std::vector<std::vector<bool>> by_part_;
};

// FP16 where no gradient was rounded: then the question is which scale FP16 would need. nullptr otherwise.
const FloatFormat* format_to_ask(const Snapshot& reader);

}  // namespace ulpscope
