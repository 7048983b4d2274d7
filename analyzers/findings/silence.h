// The evidence of findings on outputs that are all zero, and what they call them.
#pragma once

#include <span>

#include "ulpscope/analyzers/judgements/suspects.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// A phrase: "`drop` (dropout)", or the tensor's name where its op is in no module.
Sentence silent_place(const RunFacts& facts, uint32_t tensor);

// Those that were silent for the longest first.
Suspects silent_suspects(const RunFacts& facts, std::span<const uint32_t> tensors);

}  // namespace findings
}  // namespace ulpscope
