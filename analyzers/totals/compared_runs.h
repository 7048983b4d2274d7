// What two runs are compared by: their losses, step by step, and the ranges of each op's outputs, matched by op id and slot.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/totals/first_different_output.h"
#include "ulpscope/analyzers/totals/range_totals.h"

namespace ulpscope {

// An output of an op: several tensors where its type or its arithmetic changed between runs that are read as one.
struct ComparedOutput {
  uint32_t tensor = 0;  // the first of them
  std::vector<std::string> types;
  RangeTotals totals;
};

struct ComparedRun {
  ComparedRun(const Snapshot& trace, const AnalysisOptions& options);
  ~ComparedRun();
  ComparedRun(const ComparedRun&) = delete;

  const Snapshot& trace() const;
  const Selection& selection() const;
  RowKey output_key(uint32_t tensor) const;  // of all tensors that are the output

  std::map<OutputId, ComparedOutput> outputs;
  StepTotals steps;
  bool broke = false;  // to its end every loss was NaN or infinite
  bool complete = true;

 private:
  struct Seen;
  const std::unique_ptr<Seen> seen_;
};

struct LossComparison {
  struct Step {
    uint64_t step;
    double a, b;
  };
  bool has_common_rank = false;  // or each is of one rank
  uint64_t common = 0, equal = 0;
  std::optional<Step> first_difference;  // the first step whose losses differ in any bit
  std::vector<Step> last;                // common ones, StepTotals::kLastLosses at most; of several ranks those of the first
};

// An output in both traces, or in one.
struct MatchedOutput {
  const ComparedOutput* a = nullptr;
  const ComparedOutput* b = nullptr;
};
using MatchedOutputs = std::map<OutputId, MatchedOutput>;

// The ranks that are compared with each other. One rank is compared with one rank, whatever their numbers.
std::vector<std::pair<int32_t, int32_t>> common_ranks(const Snapshot& a, const Snapshot& b);

struct ComparedRuns {
  ComparedRuns(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options);
  // To say that one ended with a higher one.
  bool have_enough_losses() const;
  // True iff both have one seed, began with the same weights and trained on the same samples, as far as that was recorded: else
  // their losses differ whatever the precision.
  bool are_comparable() const { return have_equal_seeds && have_equal_weights && have_equal_samples; }
  static constexpr size_t kFewestLosses = 10;  // of common steps

  const ComparedRun a, b;
  const LossComparison losses;
  const MatchedOutputs outputs;
  const bool have_equal_seeds;
  const bool have_equal_weights;  // in their first common step, as far as neither trace has them in a narrow type
  // In the steps that both recorded samples of, in their order; and what went in as data in the first common step is the same, as
  // far as neither trace has it in a narrow type.
  const bool have_equal_samples;
  const ComparedBits bits;
};

}  // namespace ulpscope
