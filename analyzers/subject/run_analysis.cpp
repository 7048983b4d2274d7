#include "ulpscope/analyzers/subject/run_analysis.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

constexpr size_t kStepRowsAtOnce = 4096;
constexpr size_t kRowsAtOnce = 65536;

// Rows of a table that has few of a step, of as many steps as there is room for.
template <typename Row>
class RowsOfSteps {
 public:
  // Returns of how many of these steps it has all, at least one. `visit` visits the table.
  template <typename Visit>
  size_t read(std::span<const StepRow> steps, const Visit& visit) {
    rows_.clear();
    std::optional<uint64_t> beyond;
    visit([&](std::span<const Row> rows) {
      for (const Row& row : rows) {
        if (rows_.size() >= kRowsAtOnce && row.step != rows_.back().step) {
          beyond = row.step;
          return false;
        }
        rows_.push_back(row);
      }
      return true;
    });
    if (!beyond) return steps.size();
    return static_cast<size_t>(
        std::lower_bound(steps.begin(), steps.end(), *beyond, [](const StepRow& row, uint64_t step) { return row.step < step; }) -
        steps.begin());
  }
  std::span<const Row> of(uint64_t step) const {
    const auto [first, last] =
        std::equal_range(rows_.begin(), rows_.end(), Row{.step = step}, [](const Row& a, const Row& b) { return a.step < b.step; });
    return {first, last};
  }

 private:
  std::vector<Row> rows_;
};

// Steps of one part, of which rows are read together.
class StepBatch {
 public:
  StepBatch(const AnalysisContext& context, size_t part, TablesRead tables, const std::function<void(const Block&)>& visit,
            const std::function<bool(size_t)>& seen)
      : context_(context), trace_(context.trace.of_part(part)), part_(part), tables_(tables), visit_(visit), seen_(seen) {}

  // False: that was asked for.
  bool read(std::span<const StepRow> steps) {
    while (!steps.empty()) {
      const size_t count = read_beside(steps);
      steps_ = steps.first(count);
      steps = steps.subspan(count);
      begun_ = false;
      if (tables_.rows && !read_rows()) return false;
      end_steps_before(UINT64_MAX);
    }
    return true;
  }

 private:
  StepRange range(std::span<const StepRow> steps) const { return {steps.front().step, steps.back().step + 1}; }

  // Returns for how many of these steps there is room for what else was asked for.
  size_t read_beside(std::span<const StepRow> steps) {
    size_t count = steps.size();
    const auto read = [&](bool wanted, auto& table, auto visit) {
      if (!wanted) return;
      const std::span<const StepRow> left = steps.first(count);
      count = table.read(left, [&](const auto& take) { (trace_.*visit)(range(left), take); });
    };
    read(tables_.parameters, parameters_, &Snapshot::visit_parameters);
    read(tables_.sums, sums_, &Snapshot::visit_sums);
    return count;
  }

  bool read_rows() {
    bool goes_on = true;
    const auto take = [&](std::span<const TensorRow> rows) {
      const size_t count = rows.size();
      while (!rows.empty()) {
        const uint64_t step = rows.front().step;
        end_steps_before(step);
        if (steps_.empty() || steps_.front().step != step) {
          throw unreadable_error("'{}' is damaged: a tensor row is of step {}, which its step table does not have in this place",
                                 context_.parts[part_].path, step);
        }
        const auto next = std::find_if(rows.begin(), rows.end(), [&](const TensorRow& row) { return row.step != step; });
        const auto length = static_cast<size_t>(next - rows.begin());
        give(rows.first(length), false);
        rows = rows.subspan(length);
      }
      return goes_on = seen_(count);
    };
    const StepRange steps = range(steps_);
    tables_.histograms ? trace_.visit_rows(steps, take) : trace_.visit_rows_without_histograms(steps, take);
    return goes_on;
  }

  void end_steps_before(uint64_t step) {
    while (!steps_.empty() && steps_.front().step < step) {
      give({}, true);
      steps_ = steps_.subspan(1);
      begun_ = false;
    }
  }

  void give(std::span<const TensorRow> rows, bool ends) {
    const uint64_t step = steps_.front().step;
    const auto parameters = begun_ ? std::span<const ParameterRow>() : parameters_.of(step);
    const auto sums = begun_ ? std::span<const SumRow>() : sums_.of(step);
    visit_({part_, context_.parts[part_].run.rank, steps_.front(), rows, parameters, sums, !begun_, ends});
    begun_ = true;
  }

  const AnalysisContext& context_;
  const Snapshot trace_;  // the part
  const size_t part_;
  const TablesRead tables_;
  const std::function<void(const Block&)>& visit_;
  const std::function<bool(size_t)>& seen_;
  RowsOfSteps<ParameterRow> parameters_;
  RowsOfSteps<SumRow> sums_;
  std::span<const StepRow> steps_;  // that have not ended
  bool begun_ = false;              // a block of the first of them was given
};

// Up to which the loss of a step is nothing; kUnknown where the first one is none to compare with.
double fitted_loss(const Snapshot& trace) {
  // A cross-entropy in FP32 cannot tell less from 0. One of many units says nothing of how small a loss is none.
  constexpr double kNothing = 0x1p-24, kMost = 1;
  const std::vector<OpInfo>& ops = trace.ops();
  // What rounds a loss to a narrow type makes zeros of small ones.
  const auto loses = [&](const TensorInfo& tensor) {
    return tensor.role == Role::loss && ops[tensor.op].phase == Phase::loss && is_narrow(tensor.dtype);
  };
  if (std::any_of(trace.tensors().begin(), trace.tensors().end(), loses)) return kUnknown;
  double first = kUnknown;
  const Snapshot of_rank = trace.of_rank(trace.ranks().front());
  std::optional<uint64_t> step;
  of_rank.visit_steps({}, [&](std::span<const StepRow> rows) {
    if (!rows.empty()) step = rows.front().step;
    return !step;
  });
  if (!step) return kUnknown;
  visit_steps_with_losses(of_rank, {*step, *step + 1}, [&](std::span<const StepRow> rows) {
    if (rows.front().loss_known) first = rows.front().loss;
    return false;
  });
  return first > 0 && std::isfinite(first) ? kNothing * std::min(first, kMost) : kUnknown;
}

}  // namespace

AnalysisContext::AnalysisContext(const Snapshot& snapshot, const AnalysisOptions& asked, const AnalysisContext* before)
    : trace(snapshot),
      options(asked),
      parts(snapshot.parts()),
      // Snapshots share the tables that did not change.
      tables_(before && &before->trace.ops() == &trace.ops() && &before->trace.tensors() == &trace.tensors() &&
                      &before->trace.graph() == &trace.graph() && before->parts.size() == parts.size()
                  ? before->tables_
                  : std::make_shared<const Tables>(trace, asked)),
      fitted_loss_(fitted_loss(trace)),
      selection(tables_->selection),
      graph(tables_->graph),
      masks(tables_->masks),
      settings(tables_->settings) {}

bool visit_blocks(const AnalysisContext& context, PartSteps steps, TablesRead tables,
                  const std::function<void(const Block&)>& visit, const std::function<bool(size_t)>& seen) {
  if (!seen(0)) return false;
  bool goes_on = true;
  StepBatch batch(context, steps.part, tables, visit, seen);
  std::vector<StepRow> rows;
  const auto read = [&] {
    goes_on = batch.read(rows);
    rows.clear();
    return goes_on;
  };
  visit_steps_with_losses(context.trace.of_part(steps.part), steps.steps, [&](std::span<const StepRow> more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return rows.size() < kStepRowsAtOnce || read();
  });
  return goes_on && read();
}

}  // namespace ulpscope
