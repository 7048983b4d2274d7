// How far the elements of a call's outputs may be from what they would be without any rounding: each op's definition, run with
// values that carry their bounds (bounded.h), in the order in which ours adds where that is fixed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/emulation/real.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

struct ElementBound {
  Real exact;           // of the inputs as they are; Inf and NaN where the definition has them
  double bound = 0;     // on |stored - exact|; Inf where nothing is known, as where a value on the way may overflow
  double computed = 0;  // the part of it from before the result was stored
};

// Of the elements of output `slot` with these logical indices, or of all of them. Nothing where the output is of integers, and of
// `source`, which computes none. The inputs are as they are before the call; outputs need no memory. Products are summed in any
// order, or as their arithmetic has it (docs/numerics.md).
std::vector<ElementBound> bounds_of(const OpCall& call, int slot, std::span<const int64_t> elements);
std::vector<ElementBound> bounds_of(const OpCall& call, int slot);

}  // namespace ulpscope
