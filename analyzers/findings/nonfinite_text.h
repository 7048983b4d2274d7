// What findings on where NaN and Inf began share.
#pragma once

#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

struct NonfiniteExplanation;
struct NonfiniteOrigin;
struct RowPosition;

namespace findings {

// A phrase: ", rank 3", where a run has several; or nothing.
Sentence of_rank(const RunFacts& facts, int rank);
// A phrase: "in the forward pass".
Sentence in_pass(Phase phase);
// A phrase: "NaN", "Inf", "NaN and Inf".
Sentence kind_of(uint64_t nan, uint64_t infinities);
// Says that it lies in a running statistic, or that an op divided by it; or nothing.
Sentence further_harm(const RunFacts& facts, const NonfiniteOrigin& origin);
// How many tensors held NaN or Inf. As the table of ranges has them: gradients of skipped steps too.
size_t count_nonfinite_tensors(const RunFacts& facts);
// Says so, and in how many of them it began; nothing where there is one.
Sentence nonfinite_tensors(const RunFacts& facts);
// The origin, and the tensors that were next.
std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin);
Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin);
// Where autocast of a GPU would have computed that op in FP32, and the run's, on a CPU, did not; or nothing.
Sentence wide_on_gpu(const RunFacts& facts, const NonfiniteOrigin& origin);
// Names the command that shows the element, where one of the tensor was captured; or nothing.
Sentence advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation);
// What helps where a value was too large for its type: the constant that makes it so, a wider type, and of a gradient or a scaled
// loss a lower loss scale.
Advice overflow_advice(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation);

// "FP16 overflow in the forward pass: `features.0` (conv2d), step 3, 2 of 64 elements.", of the origin.
void tell_overflow(const RunFacts& facts, const NonfiniteOrigin& origin, Findings& found);
// Advice where a type with the range of FP32 was too narrow.
extern const Template kNoTypeHelps;
extern const Template kNoScaleHelps;

}  // namespace findings
}  // namespace ulpscope
