// What the rows of gradients say of the loss scale, besides which one fits them (fitting_scale.h).
#pragma once

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/flush_loss.h"
#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

struct GradientLosses {
  struct Flushed {
    RoundingBounds seen;
    FlushLoss loss;
    void append(const Flushed& later) {
      seen += later.seen;
      loss.add(later.loss);
    }
    void beside(const Flushed& other) { append(other); }
  };
  PerTensor<Flushed> flushed;        // of the recorded roundings of each gradient
  uint64_t rows_without_values = 0;  // of gradients
  // A gradient overflowed, and the rounding mode kept it at the largest number: at any scale, and at one above 100000.
  bool saturated = false, saturated_above_100000 = false;

  void append(const GradientLosses& later);
  void beside(const GradientLosses& other) { append(other); }
};

class ScaleFacts {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block);
  void merge(ScaleFacts&& other) { losses_.merge(std::move(other.losses_)); }
  TablesRead reads() const { return {}; }
  const ByRank<GradientLosses>& losses() const { return losses_; }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<GradientLosses> losses_;
};

}  // namespace ulpscope
