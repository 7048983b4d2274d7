// The facts, tables and plots of `ulpscope scale`.
#pragma once

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

struct AnalysisContext;
struct FittingScales;
struct StepTotals;
class ScaleJudgement;
class Selection;

class ScaleTables {
 public:
  // All arguments outlive them.
  ScaleTables(const AnalysisContext& context, const StepTotals& steps, const ScaleJudgement& scale, const FittingScales& fitting);
  void add_to(Report& report) const;

 private:
  Table changes_table() const;
  Table fits_table() const;
  Plot history_plot() const;

  const AnalysisContext& context_;
  const Selection& selection_;
  const StepTotals& steps_;
  const ScaleJudgement& scale_;
  const FittingScales& fitting_;
};

}  // namespace ulpscope
