#include "ulpscope/analyzers/judgements/data_history.h"

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

bool is_training_data(const Selection& selection, uint32_t tensor) {
  const OpInfo& op = selection.op(tensor);
  const TensorInfo& info = selection.tensor(tensor);
  return op.kind == OpKind::source && op.phase != Phase::evaluation && info.role == Role::input && is_float(info.dtype);
}

const std::vector<DataRow>& DataHistory::rows(const AnalysisContext& context, uint32_t tensor, int rank) {
  std::vector<DataRow>& rows = rows_[{tensor, rank}];
  const uint64_t next = rows.empty() ? 0 : rows.back().step + 1;
  std::vector<DataRow> more;  // which come together or not at all
  context.trace.of_rank(rank).visit_history(tensor, {next, UINT64_MAX}, [&](std::span<const TensorRow> new_rows) {
    for (const TensorRow& row : new_rows) {
      const TensorStatistics& statistics = row.statistics;
      more.push_back({row.step, row.micro_batch, row.known == StatisticsLevel::values, statistics.count, statistics.nonfinite(),
                      statistics.largest, statistics.sum, statistics.sum_of_squares});
    }
    return true;
  });
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace ulpscope
