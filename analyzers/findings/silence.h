// The evidence of findings on outputs that are all zero.
#pragma once

#include <span>

#include "ulpscope/analyzers/judgements/suspects.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// Those that were silent for the longest first.
Suspects silent_suspects(const RunFacts& facts, std::span<const uint32_t> tensors);

}  // namespace findings
}  // namespace ulpscope
