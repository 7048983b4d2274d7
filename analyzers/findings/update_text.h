// What findings on updates that were rounded away share.
#pragma once

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

enum class SmallUpdates : uint8_t;

namespace findings {

// The share of a parameter's nonzero updates that may be rounded away before that is a finding.
inline constexpr double kLostLimit = 0.5;

// Of the weights with that rounding, those that lost more than the limit of their nonzero updates. Nothing where no update was
// applied at all, which is said already. `title`: what became of them, with `parameters`, a count, and where it is above 0 `limit`;
// `more`: what is said behind it.
void tell_lost_updates(const RunFacts& facts, SmallUpdates rounding, double limit, Severity severity, const Template& title,
                       const Advice& advice, Findings& found, const Sentences& more = {});

// A phrase that begins a sentence: "Clip to a larger norm (clipping.norm, now 1e-05)", of what the run clips by.
Advice clip_less(const RunFacts& facts);

}  // namespace findings
}  // namespace ulpscope
