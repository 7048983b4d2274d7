// Causes of NaN and Inf that the captured operands of an element tell.
#pragma once

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

namespace ulpscope {

class OriginFacts;

// Each of an origin that has a capture; NonfiniteCause::unknown: it does not tell.
NonfiniteExplanation explain_sum(const OriginFacts& origin);            // that was added up before its rounding
NonfiniteExplanation explain_normalization(const OriginFacts& origin);  // a norm or a softmax
NonfiniteExplanation explain_operands(const OriginFacts& origin);       // a function of up to three

}  // namespace ulpscope
