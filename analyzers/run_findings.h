// How training went, whatever the format. Findings (codes): run.diverged, run.no_better_than_guessing.
#pragma once

#include "ulpscope/analyzers/update_facts.h"

namespace ulpscope {

void add_divergence_finding(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report);
void add_guessing_finding(const AnalysisContext& context, const StepFacts& steps, Report& report);

}  // namespace ulpscope
