// What the ops of captured elements give in exact arithmetic, and where a captured zero came from.
#pragma once

#include <optional>

#include "ulpscope/analyzers/subject/capture_tree.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

class Selection;

// Of x and y, or of x and the factor of a scale; nothing of ops that are computed otherwise, or from more.
std::optional<double> exact_result(OpFunction function, double x, double y);

// An element that a rounding made zero.
struct FlushedElement {
  const CaptureRow* node;
  double magnitude;  // before the rounding; of a softmax an upper bound, exp(x - the row's largest)
  bool is_bound;
  double flushed_up_to;  // magnitudes up to this one may be
};

// The zero itself, or the one that it was computed from, as a product with zero is; nothing where the operands that were captured
// do not tell, or where it is the exact result.
std::optional<FlushedElement> flushed_element_behind(const Selection& selection, const CaptureTree& capture,
                                                     const CaptureRow& zero);

}  // namespace ulpscope
