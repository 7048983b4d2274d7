#include "ulpscope/analyzers/judgements/data_history.h"

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

const std::vector<DataRow>& DataHistory::rows(const AnalysisContext& context, uint32_t tensor, int rank) {
  std::vector<DataRow>& rows = rows_[{tensor, rank}];
  const uint64_t next = rows.empty() ? 0 : rows.back().step + 1;
  context.trace.of_rank(rank).visit_history(tensor, {next, UINT64_MAX}, [&](std::span<const TensorRow> more) {
    for (const TensorRow& row : more) {
      const TensorStatistics& statistics = row.statistics;
      rows.push_back({row.step, row.micro_batch, row.known == StatisticsLevel::values, statistics.count, statistics.nonfinite(),
                      statistics.largest, statistics.sum, statistics.sum_of_squares});
    }
    return true;
  });
  return rows;
}

}  // namespace ulpscope
