// Where in a model a tensor is made, as a phrase of a sentence: "`stack.2.block` (add)".
#pragma once

#include <cstdint>

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

class Selection;

// Its module, parameter or batch in code, and what it is there: "`head` (linear gradient, FP16)", "`first.weight` (exp_avg_sq)".
Sentence tensor_place(const Selection& selection, uint32_t tensor);
// The same with the pass of its op, where the name does not tell it: "`log` (forward)", "`probabilities` (softmax, forward)".
Sentence tensor_place_in_pass(const Selection& selection, uint32_t tensor);

}  // namespace ulpscope
