// What the findings of one run are computed from. Each kind of facts is made when it is first asked for, and says nothing itself.
#pragma once

#include <memory>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct AnalysisContext;
struct FittingScales;
struct PrecisionFacts;
struct RunMemory;
struct StepTotals;
class RangeFacts;
class StepFacts;
class UpdateFacts;
class Selection;
class GradientJudgement;
class QuantizationJudgement;
class RangeJudgement;
class ScaleJudgement;
class SilentOutputs;
class UpdateJudgement;
struct GradientsRead;
struct Leap;
struct LearningRate;
struct OpError;
struct MeanGuess;
struct ValueLosses;

class RunFacts {
 public:
  // What the analyses saw of the trace; nullptr: they were not asked, and then no finding may ask for what is judged by them.
  struct Seen {
    const RangeFacts* ranges = nullptr;
    const FittingScales* fitting = nullptr;
    const UpdateFacts* updates = nullptr;
  };
  // All arguments outlive it.
  RunFacts(const AnalysisContext& context, const StepFacts& steps, const Seen& seen, RunMemory& memory);
  ~RunFacts();
  RunFacts(const RunFacts&) = delete;

  const AnalysisContext& context;
  const Selection& selection;  // the context's
  const StepFacts& step_facts;
  RunMemory& memory;  // of the run, as it was looked at before

  const StepTotals& steps() const;         // that are asked for
  const StepTotals& judged_steps() const;  // those of them before the run broke
  StepRange judged_range() const;          // that these lie in
  bool broke() const;
  const PrecisionFacts& precision() const;
  const FittingScales& fitting() const;            // which loss scales fit
  const RangeJudgement& ranges() const;            // of all tensors
  const SilentOutputs& silent() const;             // which were zero to the end
  const GradientJudgement& gradients() const;      // what roundings did to them
  const QuantizationJudgement& quantized() const;  // what one scale a tensor could not keep
  const ScaleJudgement& scale() const;             // of the loss
  bool sees_updates() const;
  const UpdateJudgement& updates() const;
  const GradientsRead& gradients_read() const;  // in which state updates read them
  const Leap* leap() const;                     // leap_of(); nullptr: nothing
  const std::vector<LearningRate>& learning_rates() const;
  const std::vector<OpError>& op_errors() const;  // of those that were computed again
  const ValueLosses& value_losses() const;        // of casts and additions
  const MeanGuess* mean_guess() const;            // mean_guess_of(); nullptr: nothing

 private:
  struct Made;
  const Seen seen_;
  const std::unique_ptr<Made> made_;
};

}  // namespace ulpscope
