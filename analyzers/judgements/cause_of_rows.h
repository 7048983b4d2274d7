// Causes of NaN and Inf that rows alone tell: nothing was captured.
#pragma once

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

namespace ulpscope {

class OriginFacts;

// NonfiniteCause::unknown: what was recorded does not tell.
NonfiniteExplanation explain_by_rows(const OriginFacts& origin);

}  // namespace ulpscope
