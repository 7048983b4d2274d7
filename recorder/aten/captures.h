// How an element that became NaN or Inf came about: what it was computed from, of ops whose arithmetic is plain.
#pragma once

#include <span>
#include <vector>

#include "ulpscope/recorder/aten/schema.h"

namespace ulpscope::aten {

// A tensor that the op read, its memory on the host, and the output that it was.
struct ReadValues {
  Read read;
  const void* data = nullptr;
  ulpscope_value made_by = {};
  bool is_overwritten = false;
};

bool is_explained(const Schema& schema);
// The first element that is not finite, as the one node of a list; or nothing.
std::vector<ulpscope_node> nonfinite_element(const Tensor& tensor, const void* data);
// The first element of an output that is not finite, and its operands; nothing where they are none that are understood. Shapes are
// those of the tensors.
std::vector<ulpscope_node> explain(const Schema& schema, const Bound& bound, const Tensor& output, const void* data,
                                   std::span<const ReadValues> reads);

}  // namespace ulpscope::aten
