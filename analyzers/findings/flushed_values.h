// Values other than gradients of which a rounding flushed much to zero.
#pragma once

#include "ulpscope/analyzers/judgements/suspects.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// `felt`: those that the loss is computed from, and that lost most, so that their norm felt it; or the others.
Suspects flushed_values(const RunFacts& facts, bool felt);

}  // namespace findings
}  // namespace ulpscope
