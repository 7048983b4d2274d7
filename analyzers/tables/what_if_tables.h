// The tables and plots of `ulpscope whatif`.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/tables/asked_scales.h"
#include "ulpscope/analyzers/tables/range_tables.h"
#include "ulpscope/analyzers/tables/scaling_replay.h"

namespace ulpscope {

struct AnalysisContext;

struct WhatIfOptions : AnalysisOptions {
  std::vector<const FloatFormat*> formats{&binary16};
  std::vector<int> exponents;  // of the scales, ascending; empty: those of 2^0 to 2^24
  std::vector<Scaling> scalings;
  GroupBy by = GroupBy::tensor;
  // The limit counts groups, each of which is there at every scale, and the others are added up: for who chooses among scales
  // later. Else it counts rows.
  bool at_every_scale = false;
};

class WhatIfTables {
 public:
  // The references outlive them.
  WhatIfTables(const AnalysisContext& context, const WhatIfOptions& options, const std::vector<int>& replayed, RunWhatIf run,
               StepTotals steps);
  // False where only counts were recorded.
  bool has_values() const { return rows_ > 0 || run_.rows_without_values == 0; }
  bool tells_of_gradients() const;
  void add_to(Report& report) const;

 private:
  struct Group {
    std::string name;
    RowKey key;
    std::vector<SweepAnswer> scaled;    // by format and scale, of tensors that contain the loss scale; empty: there are none
    std::vector<SweepAnswer> unscaled;  // by format, of those that do not
    bool comes_last = true;
  };
  // The scale at which the least part of all gradients' norm is lost: the one where it is surely no more than at any other, or
  // where that is least to fear, and those that may be as good.
  struct Least {
    size_t scale, from, to;  // places among the scales
    bool known = false;      // there are gradients, and the scale makes a difference
  };

  size_t place(size_t format, size_t scale) const;
  void add_groups();
  void judge();
  Table least_table() const;
  Table what_if_table() const;
  void add_worst_lines(Table& table) const;
  // Those that are shown at every scale, the worst first, and the others together.
  struct WholeGroups {
    std::vector<const Group*> shown;
    Group others;
    size_t other_groups = 0;
  };
  WholeGroups whole_groups() const;
  void add_whole_groups(Table& table) const;
  Table scaling_table(const std::vector<ReplayedScaling>& replayed) const;
  Plot lost_plot() const;
  Plot scaling_plot(const std::vector<ReplayedScaling>& replayed) const;
  CountBounds overflowing_steps(size_t format, int exponent) const;

  const AnalysisContext& context_;
  const WhatIfOptions& options_;
  const std::vector<int>& replayed_;
  const RunWhatIf run_;
  const StepTotals steps_;
  uint64_t rows_ = 0, unknown_ = 0;
  std::vector<Group> groups_;
  std::vector<SweepAnswer> gradients_;  // all of them
  std::vector<Least> least_;            // by format
};

}  // namespace ulpscope
