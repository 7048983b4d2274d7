// The facts, tables and plots of `ulpscope updates`.
#pragma once

#include <span>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/totals/step_columns.h"
#include "ulpscope/analyzers/totals/update_history.h"

namespace ulpscope {

class RunFacts;
class UpdateJudgement;

class UpdateTables {
 public:
  // All arguments outlive them.
  UpdateTables(const RunFacts& facts, const UpdateHistory& history);
  void add_to(Report& report) const;

 private:
  struct Weight {
    uint32_t tensor;
    size_t judged;  // its place in UpdateJudgement::weights()
    std::span<const UpdateStep> steps;
    LostUpdates updates;
  };
  Table parameters_table() const;
  Table decay_table() const;
  Table sums_table() const;
  StepColumns columns_of_updates() const;  // where there are some
  static std::vector<LostUpdates> lost_in(const StepColumns& columns, std::span<const UpdateStep> steps);
  Plot lost_plot() const;
  Plot lost_heatmap() const;
  bool is_full(const Table& table) const;

  const RunFacts& facts_;
  const UpdateJudgement& judged_;
  RunUpdateSeries room_;
  std::vector<Weight> weights_;  // the one that lost most first
  UpdateSeries all_;
  UpdateSeries not_stochastic_;  // of those that may stall: stochastic rounding loses nothing on average
};

}  // namespace ulpscope
