#include "ulpscope/analyzers/judgements/learning_rates.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

std::vector<LearningRate> learning_rates_of(const RunFacts& facts) {
  std::vector<LearningRate> rates;
  const StepRange judged = facts.judged_range();
  for (const StepNumbers& one : facts.memory.steps.steps(facts.context))
    if (judged.contains(one.step) && std::isfinite(one.learning_rate)) rates.push_back({one.step, one.learning_rate});
  return rates;
}

}  // namespace ulpscope
