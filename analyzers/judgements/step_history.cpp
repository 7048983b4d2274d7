#include "ulpscope/analyzers/judgements/step_history.h"

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

const std::vector<StepNumbers>& StepHistory::steps(const AnalysisContext& context) {
  const uint64_t next = steps_.empty() ? 0 : steps_.back().step + 1;
  std::vector<StepNumbers> more;  // which come together or not at all
  visit_steps_with_losses(context.trace.of_rank(context.trace.ranks().front()), {next, UINT64_MAX},
                          [&](std::span<const StepRow> rows) {
                            for (const StepRow& row : rows)
                              more.push_back({row.step, row.loss, row.learning_rate, row.loss_known, row.skipped});
                            return true;
                          });
  steps_.insert(steps_.end(), more.begin(), more.end());
  return steps_;
}

}  // namespace ulpscope
