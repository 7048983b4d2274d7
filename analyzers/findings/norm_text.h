// Phrases on how much roundings flushed of the norms of tensors. What is known are upper bounds (flush_loss.h).
#pragma once

#include <cstdint>
#include <span>

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// The most of any row of these tensors: "up to 12.3% of the norm".
Sentence most_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors);
// Of tensors for which it does not matter: "in nine of ten rows or more these were at most 1% of the norm".
Sentence little_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors);

}  // namespace findings
}  // namespace ulpscope
