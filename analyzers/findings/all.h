// The list of all findings.
#pragma once

#include <span>
#include <string_view>

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

// In order of rank: of two findings that may each come of the other, the first one is the cause, and of those of one part that are
// as severe the first one is told first.
std::span<const FindingRule* const> finding_rules();
// Throws Error (failed) where there is none with that code.
const FindingRule& finding_rule(std::string_view code);

// Adds what there is to say of these parts of a run, one after the other, and of two runs.
void find_all(std::span<const Part> parts, const RunFacts& facts, Report& report);
void find_all(const ComparedRuns& runs, Report& report);
// One finding of a run alone.
void find_one(std::string_view code, const RunFacts& facts, Report& report);

}  // namespace ulpscope
