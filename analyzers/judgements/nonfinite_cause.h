// Why an output was not finite though all inputs of its op were: the class of the cause (docs/numerics.md, causes of a NaN), and
// the arithmetic that shows it, by what the op does, the settings of its call, and the operands that were captured.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/subject/advice.h"
#include "ulpscope/analyzers/subject/capture_tree.h"

namespace ulpscope {

struct NonfiniteOrigin;
class RunFacts;

enum class NonfiniteCause : uint8_t {
  overflow_on_cast,        // to a type in which the value is too large
  overflow_in_arithmetic,  // the result is too large for its type
  overflow_of_a_sum,       // a partial sum is, for what the op adds in, or the whole sum for the type of the result
  overflow_of_exp,
  division_by_zero,
  zero_over_zero,
  zero_times_infinity,  // by a constant: what the op read was finite
  log_of_zero,
  log_of_negative,
  sqrt_of_negative,
  power_domain,
  masked_row,              // of a softmax: every value of the row was masked
  epsilon_flushed,         // what the optimizer adds to a denominator is zero in the type of its arithmetic
  denominator_underflow,   // of an optimizer: it is zero all the same
  second_moment_overflow,  // of an optimizer
  bad_data,                // of a batch
  bad_start,               // of a weight, a state or a constant: it was so before the first op
  memory_changed,          // a weight or state was not what had been written
  opaque,                  // of an op that cannot be looked into
  not_recorded,            // a weight or state was so after steps whose ops were not recorded
  unknown,                 // what was recorded does not tell
};
inline constexpr int kNonfiniteCauses = 21;
const char* name_of(NonfiniteCause cause);     // "overflow_on_cast"
const char* meaning_of(NonfiniteCause cause);  // "a value too large for the type that it is cast to"

// A result was too large for its type.
bool is_overflow(NonfiniteCause cause);

struct NonfiniteExplanation {
  NonfiniteCause cause = NonfiniteCause::unknown;
  Sentence headline = {};        // where the cause has one of its own: "Adam divides by zero at step 0: ..."
  Sentences story = {};          // the arithmetic: "Element [0, 5]: log(0) = -Inf."; nothing where nothing is known
  Advice help = {};              // what helps, where the cause says it
  bool is_of_constants = false;  // the operands are constants that a program takes for its type, so that no type helps
  bool fp32_keeps = false;  // what a rounding to a narrower type made zero: the zero that was divided by, or taken the logarithm of
  std::optional<CaptureTree> capture = {};  // of the first element that was captured in that step
};
NonfiniteExplanation explain(const RunFacts& facts, const NonfiniteOrigin& origin);

}  // namespace ulpscope
