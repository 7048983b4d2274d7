// How far the elements of a call's outputs may be from what they would be without rounding: each op's definition, run with values
// that carry their bounds (plain/bounded.h), in the order in which ours adds where that is fixed.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

struct ElementBound {
  // The exact result is the sum of both, to within 2^-105 of it; Inf or NaN where the definition has them, or where a result is
  // certain to be beyond the output's format. Where that saturates it is no larger than the largest number.
  double exact = 0, rest = 0;
  double bound = 0;     // on |stored - exact|; Inf where nothing is known, as where a value on the way may overflow
  double computed = 0;  // the part of it from before the result was stored

  bool is_known() const { return bound < HUGE_VAL; }
  // |stored - exact|; 0 of the same Inf or of two NaN, else Inf where one of both is not finite.
  double error_of(double stored) const;
};

// Bounds of the elements of output `slot` with these logical indices, or of all of them. Nothing where the output is of integers,
// and of `source`, which computes none. The inputs are as they are before the call; outputs need no memory. Products are summed in
// any order, or as their arithmetic has it (docs/numerics.md, "Bounds"). A quantization scale that follows from an amax is taken as
// the FP32 number that it is.
std::vector<ElementBound> bounds_of(const OpCall& call, int slot, std::span<const int64_t> elements);
std::vector<ElementBound> bounds_of(const OpCall& call, int slot);
// The formula of an element's ElementBound::computed, with its numbers: "gamma_64(2^-24) S, S = sum |terms| = 12.3".
std::string bound_formula(const OpCall& call, int slot, int64_t element);

}  // namespace ulpscope
