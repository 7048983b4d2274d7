// What findings on where NaN and infinities began share.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

struct NonfiniteExplanation;
struct NonfiniteOrigin;

namespace findings {

// The origin's tensor and the phase of its op.
std::string place_of(const RunFacts& facts, const NonfiniteOrigin& origin);
// That it lies in a running statistic, or that an op divided by it, as a sentence with a blank before it; or "".
std::string further_harm(const RunFacts& facts, const NonfiniteOrigin& origin);
// How many tensors held NaN or infinity. As the table of ranges has them: gradients of skipped steps too.
size_t count_nonfinite_tensors(const RunFacts& facts);
std::string nonfinite_tensors(const RunFacts& facts);  // "29 tensors"
// The origin, and the tensors that were next.
std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin);
Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin);
// What shows the element, where one of the tensor was captured; or "".
std::string advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation);

// "features.0 conv2d became too large for fp16 in step 3", of the origin. `help`: what keeps it in a type of less range than FP32,
// as the beginning of a sentence.
void tell_overflow(const RunFacts& facts, const NonfiniteOrigin& origin, const Advice& help, Findings& found);
// What helps where a type with the range of FP32 was too narrow, as the beginning of a sentence.
extern const char* const kNoTypeHelps;

}  // namespace findings
}  // namespace ulpscope
