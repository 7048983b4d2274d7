// What keeps the operands of a function where it is defined.
#pragma once

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

namespace ulpscope {

class OriginFacts;

// Of the function, or of the one that this is the gradient of; nothing where the cause is another.
Sentences domain_advice(const OriginFacts& origin, NonfiniteCause cause);

}  // namespace ulpscope
