#include "ulpscope/analyzers/judgements/learning_rates.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

std::vector<LearningRate> learning_rates_of(const AnalysisContext& context, const StepFacts& steps) {
  std::vector<LearningRate> rates;
  const StepRange judged{context.options.steps.first, std::min(context.options.steps.last, steps.broken_from())};
  context.trace.of_rank(context.trace.ranks().front()).visit_steps(judged, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows)
      if (std::isfinite(row.learning_rate)) rates.push_back({row.step, row.learning_rate});
    return true;
  });
  return rates;
}

}  // namespace ulpscope
