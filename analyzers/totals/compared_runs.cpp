#include "ulpscope/analyzers/totals/compared_runs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/followed.h"

namespace ulpscope {

namespace {

// What the rows of each tensor add up to.
class TensorTotals {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block) {
    PerTensor<RangeTotals>& totals = totals_.at(block.rank, block.step);
    for (const TensorRow& row : block.rows) {
      if (!context_->selection.contains(row)) continue;
      const TensorInfo& tensor = context_->selection.tensor(row.tensor);
      if (is_float(tensor.dtype)) totals[row.tensor].add(row, tensor);
    }
  }
  void merge(TensorTotals&& other) { totals_.merge(std::move(other.totals_)); }
  TablesRead reads() const { return {}; }
  PerTensor<RangeTotals> whole() const { return totals_.whole(); }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<PerTensor<RangeTotals>> totals_;
};

// Of one rank. Reads `a` once and `b` in batches of what `a` gave.
void visit_common_losses(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options,
                         const std::function<void(const LossComparison::Step&)>& visit) {
  visit_steps_with_losses(a, options.steps, [&](std::span<const StepRow> rows) {
    if (rows.empty()) return true;
    size_t next = 0;
    visit_steps_with_losses(b, {rows.front().step, rows.back().step + 1}, [&](std::span<const StepRow> others) {
      for (const StepRow& other : others) {
        while (next < rows.size() && rows[next].step < other.step) ++next;
        if (next == rows.size()) return false;
        if (rows[next].step == other.step && rows[next].loss_known && other.loss_known)
          visit({other.step, rows[next].loss, other.loss});
      }
      return true;
    });
    return !options.cancelled();
  });
}

// A step is equal where the losses of all ranks that are compared are.
LossComparison compare_losses(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  LossComparison result;
  StepSet common, different;
  for (const auto& [rank, other] : common_ranks(a, b)) {
    const bool is_first = !result.has_common_rank;
    result.has_common_rank = true;
    StepSet common_of_rank, different_of_rank;
    visit_common_losses(a.of_rank(rank), b.of_rank(other), options, [&](const LossComparison::Step& step) {
      // NaN equals NaN here: both runs broke in the same step.
      const bool same =
          std::bit_cast<uint64_t>(step.a) == std::bit_cast<uint64_t>(step.b) || (std::isnan(step.a) && std::isnan(step.b));
      common_of_rank.add(step.step);
      if (is_first) {
        if (result.last.size() == StepTotals::kLastLosses) result.last.erase(result.last.begin());
        result.last.push_back(step);
      }
      if (same) return;
      different_of_rank.add(step.step);
      if (!result.first_difference || step.step < result.first_difference->step) result.first_difference = step;
    });
    common.add(common_of_rank);
    different.add(different_of_rank);
  }
  result.common = common.size();
  result.equal = common.size() - different.size();
  return result;
}

// Samples that are held against each other: runs that are shuffled otherwise differ among the first few.
constexpr size_t kComparedSamples = 1000;

// The samples that a run trained on, from a step on and at most so many: of each step, in their order.
using SamplesOfSteps = std::map<uint64_t, std::vector<std::tuple<uint32_t, uint32_t, uint64_t>>>;  // micro-batch, source, sample
SamplesOfSteps samples_of(const Snapshot& trace, StepRange steps) {
  SamplesOfSteps samples;
  size_t count = 0;
  trace.visit_batches(steps, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows) {
      if (row.phase != Phase::forward) continue;
      // A step that is begun is read to its end.
      if (count >= kComparedSamples && !samples.contains(row.step)) return false;
      samples[row.step].emplace_back(row.micro_batch, row.source, row.sample);
      ++count;
    }
    return true;
  });
  return samples;
}
// The first step from which on both have some, of one rank of each; UINT64_MAX: there is none.
uint64_t first_common_step(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  const auto first_step = [&](const Snapshot& trace) {
    uint64_t first = UINT64_MAX;
    trace.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
      if (!rows.empty()) first = rows.front().step;
      return rows.empty();
    });
    return first;
  };
  return std::max(first_step(a), first_step(b));
}

// What a run was given: data, and the weights and buffers that it began with.
enum class Given : uint8_t { weights, data };

// Counts and extremes, which no order of summation changes, of what was given in a step; of types that no rounding made narrower,
// since another precision rounds it otherwise.
using GivenRows = std::map<std::tuple<OutputId, uint32_t, DType>, std::array<double, 5>>;
GivenRows given_in(const Snapshot& trace, uint64_t step, Given what) {
  GivenRows found;
  trace.visit_rows_without_histograms({step, step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = trace.tensors().at(row.tensor);
      const OpInfo& op = trace.ops().at(tensor.op);
      const bool is_data = tensor.role == Role::input;
      if (op.function != OpFunction::source || op.phase == Phase::evaluation || is_data != (what == Given::data)) continue;
      if (is_narrow(tensor.dtype) || row.known != StatisticsLevel::values) continue;
      const TensorStatistics& of = row.statistics;
      found.try_emplace({{op.id, tensor.slot}, row.micro_batch, tensor.dtype},
                        std::array{static_cast<double>(of.count), static_cast<double>(of.zeros), static_cast<double>(of.negatives),
                                   of.largest, of.smallest});
    }
    return true;
  });
  return found;
}

bool have_equal(Given what, const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  const auto ranks = common_ranks(a, b);
  return std::all_of(ranks.begin(), ranks.end(), [&](const std::pair<int32_t, int32_t>& pair) {
    const Snapshot of_a = a.of_rank(pair.first), of_b = b.of_rank(pair.second);
    const uint64_t step = first_common_step(of_a, of_b, options);
    if (step == UINT64_MAX) return true;
    const GivenRows to_a = given_in(of_a, step, what), to_b = given_in(of_b, step, what);
    return std::all_of(to_a.begin(), to_a.end(), [&](const auto& row) {
      const auto other = to_b.find(row.first);
      return other == to_b.end() || other->second == row.second;
    });
  });
}

// Compares the samples of one rank in the steps that both runs have.
bool have_equal_samples(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  StepRange steps = options.steps;
  const uint64_t first = first_common_step(a, b, options);
  if (first == UINT64_MAX) return true;
  steps.first = std::max(steps.first, first);
  const SamplesOfSteps of_a = samples_of(a, steps), of_b = samples_of(b, steps);
  return std::all_of(of_a.begin(), of_a.end(), [&](const auto& step) {
    const auto other = of_b.find(step.first);
    return other == of_b.end() || other->second == step.second;
  });
}
bool have_equal_samples_in_ranks(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  const auto ranks = common_ranks(a, b);
  return std::all_of(ranks.begin(), ranks.end(), [&](const std::pair<int32_t, int32_t>& pair) {
    return have_equal_samples(a.of_rank(pair.first), b.of_rank(pair.second), options);
  });
}

MatchedOutputs match_outputs(const ComparedRun& a, const ComparedRun& b) {
  MatchedOutputs matches;
  for (const auto& [key, output] : a.outputs) matches[key].a = &output;
  for (const auto& [key, output] : b.outputs) matches[key].b = &output;
  return matches;
}

}  // namespace

struct ComparedRun::Seen {
  Followed<TensorTotals> analysis;
};

ComparedRun::ComparedRun(const Snapshot& snapshot, const AnalysisOptions& options)
    : seen_(std::make_unique<Seen>(Seen{Followed<TensorTotals>([] { return TensorTotals(); }, options)})) {
  complete = seen_->analysis.update(snapshot);
  steps = seen_->analysis.steps().whole();
  broke = seen_->analysis.steps().broken_from() != UINT64_MAX;
  const PerTensor<RangeTotals> totals = seen_->analysis.analysis().whole();
  for (const uint32_t tensor : totals.tensors()) {
    ComparedOutput& output = outputs.try_emplace(selection().output(tensor), ComparedOutput{tensor, {}, {}}).first->second;
    std::string type(info(selection().tensor(tensor).dtype).name);
    if (std::find(output.types.begin(), output.types.end(), type) == output.types.end()) output.types.push_back(std::move(type));
    output.totals.add(*totals.find(tensor));
  }
}
ComparedRun::~ComparedRun() = default;

const Snapshot& ComparedRun::trace() const { return seen_->analysis.context().trace; }
const Selection& ComparedRun::selection() const { return seen_->analysis.context().selection; }

RowKey ComparedRun::output_key(uint32_t tensor) const {
  RowKey key = selection().key(tensor);
  key.name = selection().output_name(tensor);
  return key;
}

std::vector<std::pair<int32_t, int32_t>> common_ranks(const Snapshot& a, const Snapshot& b) {
  const std::vector<int32_t> ranks = a.ranks(), others = b.ranks();
  if (ranks.size() == 1 && others.size() == 1) return {{ranks.front(), others.front()}};
  std::vector<std::pair<int32_t, int32_t>> common;
  for (const int32_t rank : ranks)
    if (std::find(others.begin(), others.end(), rank) != others.end()) common.emplace_back(rank, rank);
  return common;
}

ComparedRuns::ComparedRuns(const Snapshot& first, const Snapshot& second, const AnalysisOptions& options)
    : a(first, options),
      b(second, options),
      losses(compare_losses(first, second, options)),
      outputs(match_outputs(a, b)),
      have_equal_seeds(first.run().seed == second.run().seed),
      have_equal_weights(have_equal(Given::weights, first, second, options)),
      have_equal_samples(have_equal_samples_in_ranks(first, second, options) && have_equal(Given::data, first, second, options)),
      bits(compare_bits(first, second, a.selection(), b.selection(), options)) {}

bool ComparedRuns::have_enough_losses() const {
  return losses.last.size() >= kFewestLosses && a.steps.nonfinite_losses.empty() && b.steps.nonfinite_losses.empty();
}

}  // namespace ulpscope
