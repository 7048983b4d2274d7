// What is said of how much roundings flushed of tensors, and of their norms. What is known of norms are upper bounds
// (flush_loss.h).
#pragma once

#include <cstdint>
#include <span>

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// Phrases. The most of any row of these tensors: "and up to 12.3% of its norm".
Sentence most_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors);
// Of tensors for which it does not matter: "but at most 1% of its norm in 9 of 10 rows or more".
Sentence little_of_norm(const RunFacts& facts, std::span<const uint32_t> tensors);

// "Each lost more than 1% of its nonzero elements, and up to 12.3% of its norm.", of so many tensors. `norm`: one of those above.
Sentence each_lost(size_t tensors, double limit, Sentence norm);

}  // namespace findings
}  // namespace ulpscope
