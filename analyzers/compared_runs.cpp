#include "ulpscope/analyzers/compared_runs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ulpscope/analyzers/followed.h"

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

// Reads `a` once and `b` in batches of what `a` gave.
LossComparison compare_losses(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  LossComparison result;
  a.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    if (rows.empty()) return true;
    size_t next = 0;
    b.visit_steps({rows.front().step, rows.back().step + 1}, [&](std::span<const StepRow> others) {
      for (const StepRow& other : others) {
        while (next < rows.size() && rows[next].step < other.step) ++next;
        if (next == rows.size()) return false;
        if (rows[next].step != other.step || !rows[next].loss_known || !other.loss_known) continue;
        ++result.common;
        const double left = rows[next].loss, right = other.loss;
        // NaN equals NaN here: both runs broke in the same step.
        const bool same =
            std::bit_cast<uint64_t>(left) == std::bit_cast<uint64_t>(right) || (std::isnan(left) && std::isnan(right));
        result.equal += same;
        if (!same && !result.first_difference) result.first_difference = LossComparison::Step{other.step, left, right};
      }
      return true;
    });
    return !options.cancelled();
  });
  return result;
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

ComparedRuns::ComparedRuns(const Snapshot& first, const Snapshot& second, const AnalysisOptions& options)
    : a(first, options), b(second, options), losses(compare_losses(first, second, options)), outputs(match_outputs(a, b)) {}

bool ComparedRuns::have_enough_losses() const {
  return std::min(a.steps.last_losses.size(), b.steps.last_losses.size()) >= 10 && a.steps.nonfinite_losses.empty() &&
         b.steps.nonfinite_losses.empty();
}

}  // namespace ulpscope
