// What keeps the operands of a function where it is defined.
#pragma once

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

namespace ulpscope {

class OriginFacts;

// Of the function, or of the one that this is the gradient of; nothing where the cause is another.
// Functions that the table of ops does not tell apart: log(1 + x), and log(x / (1 - x)).
inline constexpr std::string_view kLog1p = "log1p", kLogit = "logit";

Sentences domain_advice(const OriginFacts& origin, NonfiniteCause cause);

}  // namespace ulpscope
