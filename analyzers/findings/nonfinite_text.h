// What findings on where NaN and infinities began share.
#pragma once

#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

struct NonfiniteExplanation;
struct NonfiniteOrigin;

namespace findings {

// The origin's tensor and the phase of its op, as a phrase.
Sentence place_of(const RunFacts& facts, const NonfiniteOrigin& origin);
// Says that it lies in a running statistic, or that an op divided by it; or nothing.
Sentence further_harm(const RunFacts& facts, const NonfiniteOrigin& origin);
// How many tensors held NaN or infinity. As the table of ranges has them: gradients of skipped steps too.
size_t count_nonfinite_tensors(const RunFacts& facts);
// The origin, and the tensors that were next.
std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin);
Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin);
// Names the command that shows the element, where one of the tensor was captured; or nothing.
Sentence advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation);
// Advice to ask `ulpscope nan` for the element, and for what helps.
extern const Template kNanShowsElement, kNanShowsOperands;

// "features.0 conv2d became too large for fp16 in step 3", of the origin. `help`: what keeps it in a type of less range than FP32.
void tell_overflow(const RunFacts& facts, const NonfiniteOrigin& origin, const Advice& help, Findings& found);
// Advice where a type with the range of FP32 was too narrow.
extern const Template kNoTypeHelps;

}  // namespace findings
}  // namespace ulpscope
