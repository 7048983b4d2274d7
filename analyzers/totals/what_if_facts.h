// What any of some formats and loss scales would have done to a recording: per tensor the answers of scale_sweep.h, and per step
// what decides whether a scaler would have skipped it. A what-if is local: each rounding with the inputs that were recorded.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/fitting_bounds.h"
#include "ulpscope/analyzers/totals/scale_sweep.h"
#include "ulpscope/analyzers/totals/upstream.h"

namespace ulpscope {

// The gradients of one step, all together.
struct StepGradients {
  uint64_t step = 0;
  // By format: up to which exponent of a scale no rounding overflows.
  std::vector<ExponentBounds> largest;
  // By format, and by exponent of a replayed scale: elements flushed there. Empty unless scales are replayed.
  std::vector<CountBounds> flushed;
  uint64_t base = 0;  // elements of which that is a part

  void beside(const StepGradients& other);  // the same step of another rank
};

struct RunWhatIf {
  PerTensor<SweptRows> tensors;
  std::vector<StepGradients> steps;  // that had gradients, ascending
  uint64_t rows_without_values = 0;  // that tell nothing, because only counts were recorded
  uint64_t rows_behind_flushed = 0;  // of judged gradients, computed from one of which too much was flushed (upstream.h)

  void append(const RunWhatIf& later);
  void beside(const RunWhatIf& other);
};

// Values contain the loss scale, whatever it is: gradients until they are unscaled, and the loss once it is scaled.
bool contains_loss_scale(const TensorInfo& tensor, const OpInfo& op);
// A gradient as an op computed it, which was rounded there or would be: all of them make up "all gradients". What autocast leaves
// in FP32, and what FP8 holds, whose own scale makes up for any other, have no part in it.
bool is_judged_gradient(const TensorInfo& tensor);

class WhatIfFacts {
 public:
  // `replayed`: exponents of the scales at which a replayed scaler may stand, ascending; none are.
  WhatIfFacts(const std::vector<const FloatFormat*>& formats, const std::vector<int>& exponents, const std::vector<int>& replayed);
  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(WhatIfFacts&& other) { run_.merge(std::move(other.run_)); }
  TablesRead reads() const { return {}; }

  RunWhatIf whole() const { return run_.whole(); }

 private:
  // All rounding modes and flushes of tensors that have rows in a step.
  struct Rounds {
    RoundingMode mode;
    bool flushes_results, flushes_products;
    auto operator<=>(const Rounds&) const = default;
  };
  void add_to_step(const TensorRow& row, const TensorInfo& tensor);
  StepGradients end_step();

  std::shared_ptr<const SweepQuestion> scaled_, unscaled_, replayed_;
  const AnalysisContext* context_ = nullptr;
  std::optional<FlushedUpstream> upstream_;
  ByRank<RunWhatIf> run_;
  std::optional<StepGradients> step_;  // the current one, once it has had a gradient
  std::map<Rounds, SweptRows> step_rows_;
};

}  // namespace ulpscope
