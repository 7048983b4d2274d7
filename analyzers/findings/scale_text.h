// What findings on the loss scale share.
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/totals/fitting_bounds.h"

namespace ulpscope::findings {

Value scale_value(double scale);
Value power_value(int exponent);                                  // of the scale 2^exponent
Value scale_value(const std::optional<ExponentBounds>& fitting);  // of a scale that fits, between bounds
Value share_value(uint64_t part, uint64_t all);

// Makes a sentence of the phrase that scaling_advice gives (precision_facts.h).
inline constexpr Template kScaleTheLoss{"advice.scale_the_loss", "{said}."};
inline constexpr Template kLossesWereNonfinite{"advice.losses_were_nonfinite",
                                               "No loss scale helps: from step {step} on the loss itself is NaN or Inf."};

// The tensors that were to blame for skipped steps, where that is known, those of most steps first.
Quantity skipped_steps(uint64_t count);
std::vector<Evidence> blame_evidence(const RunFacts& facts);
// Advice on a scale that may fall no further, and skips every step; nothing where it may.
Advice advice_on_floor(const RunFacts& facts);
// Of a scaler that grows by so much that several skipped steps have to take it back: so many, and advice. Nothing where it does
// not.
Sentence steep_growth(const RunFacts& facts);
Advice grow_by_less(const RunFacts& facts);
// Advice on a scaler that grows again and again to where gradients overflow.
Advice grow_less_often(const RunFacts& facts);
// What that gradient lost from there on was lost when the scale had fallen, and it is not known to need a higher one than the run
// had.
bool began_with_fallen_scale(const RunFacts& facts, uint32_t gradient, const std::optional<RowPosition>& since);
// Whether recorded gradients are too large for the last scale, by all bounds. Nothing where none was recorded that says so.
std::optional<bool> last_scale_is_too_large(const RunFacts& facts);

// Of the scales that fit, with the tensor that decides.
Evidence smallest_fitting_evidence(const RunFacts& facts);
Evidence largest_fitting_evidence(const RunFacts& facts);

// Adds a finding on the steps whose scale stood on one side of StepTotals::kZones[zone], and why it did.
void tell_zone(const RunFacts& facts, size_t zone, bool is_trouble, const Sentences& why, const Advice& advice, Findings& found);
// Of a low scale: trouble where steps were still skipped or gradients flushed. `look`: what to do where something overflowed; where
// nothing did, no value keeps the scale low.
void tell_low_zone(const RunFacts& facts, size_t zone, const Sentence& look, Findings& found);

}  // namespace ulpscope::findings
