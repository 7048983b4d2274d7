#include "ulpscope/analyzers/judgements/step_history.h"

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

const std::vector<StepNumbers>& StepHistory::steps(const AnalysisContext& context) {
  const int rank = context.trace.ranks().front();
  if (rank != rank_) steps_.clear();  // a folder got the trace of a rank before it
  rank_ = rank;
  const uint64_t next = steps_.empty() ? 0 : steps_.back().step + 1;
  visit_steps_with_losses(context.trace.of_rank(rank), {next, UINT64_MAX}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) steps_.push_back({row.step, row.loss, row.learning_rate, row.loss_known, row.skipped});
    return true;
  });
  return steps_;
}

}  // namespace ulpscope
