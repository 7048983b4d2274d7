// Inputs on which ops err most, by class, and changes of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/cases/op_case.h"

namespace ulpscope {

enum class InputClass : uint8_t {
  uniform,       // as the case has them
  positive,      // one sign, so that errors of a sum add up
  nearly_equal,  // a few ulps apart
  cancelling,    // pairs that nearly cancel
  stagnating,    // one large number, and others of half its ulp in FP32 and below
  halfway,       // few bits, the last one set: results lie halfway between numbers of the type
  large,         // magnitudes up to 100, as logits
  wide,          // magnitudes from 2^-12 to 2^12
  tiny,          // around the smallest normal number of the type
  mutated,       // the worst of those before, changed
};
std::string_view name_of(InputClass input_class);
// The classes that inputs are made by.
std::span<const InputClass> made_input_classes();

// The inputs of a case in a type. Where the case's own have no sign, or are shares, they have none or are; indices, masks and
// constants stay what they are.
std::vector<cases::HostTensor> make_inputs(const cases::Case& what, DType type, InputClass input_class, uint64_t seed);
// Some elements of the floating-point inputs become others: a few ulps away, of the other sign, or of another binade.
void mutate_inputs(const cases::Case& what, std::vector<cases::HostTensor>& inputs, uint64_t seed);

}  // namespace ulpscope
