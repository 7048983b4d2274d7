// What became of the updates of each weight, step by step.
#pragma once

#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/lost_updates.h"

namespace ulpscope {

// Of one weight, or of several together.
struct UpdateSeries {
  std::vector<UpdateStep> steps;  // in which there were updates, ascending

  void append(const UpdateSeries& later);
  // In steps that both have, counts add up, and norms as those of parts of one tensor; a learning rate is the first that is known.
  void beside(const UpdateSeries& other);
};

struct RunUpdateSeries {
  PerTensor<UpdateSeries> weights;

  void append(const RunUpdateSeries& later) { weights.append(later.weights); }
  void beside(const RunUpdateSeries& other) { weights.beside(other.weights); }
};

class UpdateHistory {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block);
  void merge(UpdateHistory&& other) { series_.merge(std::move(other.series_)); }
  TablesRead reads() const { return {.rows = false, .histograms = false, .parameters = true}; }
  const ByRank<RunUpdateSeries>& series() const { return series_; }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<RunUpdateSeries> series_;
};

}  // namespace ulpscope
