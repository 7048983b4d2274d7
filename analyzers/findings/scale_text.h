// What findings on the loss scale share.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope::findings {

std::string scale_text(double scale);
std::string power_text(int exponent);  // of the scale 2^exponent
const char* was(uint64_t count);       // "was" or "were"

// The tensor that was to blame for most of the skipped steps, where that is known.
std::vector<Evidence> blame_evidence(const RunFacts& facts);
// Of the scales that fit, with the tensor that decides.
Evidence smallest_fitting_evidence(const RunFacts& facts);
Evidence largest_fitting_evidence(const RunFacts& facts);

// What is said of the steps whose scale stood on one side of StepTotals::kZones[zone], "below 100".
void tell_zone(const RunFacts& facts, size_t zone, const char* where, bool is_trouble, const std::string& suggestion,
               Findings& found);
// Of a low scale: trouble where steps were still skipped or gradients flushed. `look`: what to do where something overflowed; where
// nothing did, no value keeps the scale low.
void tell_low_zone(const RunFacts& facts, size_t zone, const char* where, const char* look, Findings& found);

}  // namespace ulpscope::findings
