// Two runs step by step: how far the outputs that both have lie apart, and where they first part.
#pragma once

#include <optional>
#include <string>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope {

// Of outputs with more than one element: losses are compared apart.
struct ComparedSteps {
  // The first row, in order of execution, whose recorded numbers differ in any bit, once the loss scales that the values contain
  // are taken out. Histograms are not looked at.
  struct First {
    uint64_t step = 0;
    uint32_t tensor = 0;  // of the second run
    std::string what;     // "largest"
    double a = 0, b = 0;
  };
  std::optional<First> first;
  uint64_t rows = 0;  // that were compared
  // A heatmap, outputs against steps, of those that differ, in order of execution: ||a| - |b|| / max(|a|, |b|) of the Euclidean
  // norms without their loss scales, which is at most |a - b| / max(|a|, |b|); the largest of a column's steps; 1 where only one of
  // them has NaN or infinities. Without series where none differ.
  Plot plot;
};

// `limit` series at most; 0: as many as a picture has room for.
ComparedSteps compare_steps(const ComparedRuns& runs, const AnalysisOptions& options, size_t limit);

}  // namespace ulpscope
