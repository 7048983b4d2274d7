// Ops whose output elements each come from the same element of every input.
#pragma once

#include <algorithm>
#include <vector>

#include "ulpscope/kernels/plain/element.h"

namespace ulpscope::plain {

// What such an op reads; for those that have loops of their own all that a capture needs.
struct SameElements {
  std::vector<int64_t> sizes;

  explicit SameElements(const OpCall& call) {
    for (const TensorView& input : call.inputs) sizes.push_back(input.size());
  }
  // A scalar stands for every element.
  int64_t element(size_t input, int64_t e) const { return std::min(e, sizes[input] - 1); }
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    for (size_t i = 0; i < sizes.size(); ++i) in(static_cast<int>(i), element(i, e));
    return {};
  }
};

}  // namespace ulpscope::plain
