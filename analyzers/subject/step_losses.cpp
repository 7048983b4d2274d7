#include "ulpscope/analyzers/subject/step_losses.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ulpscope {

namespace {

struct PassLoss {
  bool is_unscaled = false;
  uint32_t sequence = 0;
  std::optional<double> value;  // nothing: finite, and not recorded
};
// The keys are micro-batches and losses.
using PassLosses = std::map<std::pair<uint32_t, uint8_t>, PassLoss>;

bool is_loss(const Snapshot& trace, const TensorInfo& tensor) {
  const Phase phase = trace.ops()[tensor.op].phase;
  return tensor.role == Role::loss && phase != Phase::backward && phase != Phase::evaluation;
}

std::optional<double> stored_value(const TensorRow& row, DType dtype) {
  const TensorStatistics& statistics = row.statistics;
  if (statistics.nan > 0) return kUnknown;
  if (stored_infinities(row, dtype) > 0) {
    const bool is_negative = statistics.infinities() > 0 ? statistics.negative_infinity > 0 : statistics.sum < 0;
    return is_negative ? -INFINITY : INFINITY;
  }
  if (statistics.zeros > 0) return 0;
  if (row.known != StatisticsLevel::values) return std::nullopt;
  return statistics.sum / row.scale;
}

std::optional<double> loss_of(const PassLosses& passes) {
  double sum = 0;
  std::set<uint32_t> micro_batches;
  bool is_known = true;
  for (const auto& [pass, loss] : passes) {
    micro_batches.insert(pass.first);
    is_known = is_known && loss.value.has_value();
    sum += loss.value.value_or(0);
  }
  // A pass whose loss is NaN or infinite makes that of the step so, whatever the others were.
  if (passes.empty() || (!is_known && std::isfinite(sum))) return std::nullopt;
  return sum / static_cast<double>(micro_batches.size());
}

// The trace is one part of its run.
void fill_in(const Snapshot& part, const std::vector<uint32_t>& tensors, std::vector<StepRow>& steps) {
  std::map<uint64_t, PassLosses> losses;
  for (const uint32_t tensor : tensors) {
    const DType dtype = part.tensors()[tensor].dtype;
    part.visit_history(tensor, {steps.front().step, steps.back().step + 1}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        if (row.known == StatisticsLevel::none || row.statistics.count != 1) continue;
        const PassLoss loss{row.scale == 1, row.sequence, stored_value(row, dtype)};
        PassLoss& of_pass = losses[row.step].try_emplace({row.micro_batch, row.loss_index}, loss).first->second;
        if (std::pair(loss.is_unscaled, loss.sequence) > std::pair(of_pass.is_unscaled, of_pass.sequence)) of_pass = loss;
      }
      return true;
    });
  }
  for (StepRow& step : steps) {
    const auto found = losses.find(step.step);
    if (step.loss_known || found == losses.end()) continue;
    const std::optional<double> loss = loss_of(found->second);
    step.loss_known = loss.has_value();
    step.loss = loss.value_or(kUnknown);
  }
}

}  // namespace

void visit_steps_with_losses(const Snapshot& trace, StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) {
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < trace.tensors().size(); ++i)
    if (is_loss(trace, trace.tensors()[i])) tensors.push_back(i);
  if (tensors.empty()) return trace.visit_steps(range, visit);
  const size_t parts = trace.parts().size();
  bool goes_on = true;
  for (size_t i = 0; i < parts && goes_on; ++i) {
    const Snapshot part = trace.of_part(i);
    part.visit_steps(range, [&](std::span<const StepRow> rows) {
      const bool lacks_some = std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return !row.loss_known; });
      if (!lacks_some) return goes_on = visit(rows);
      std::vector<StepRow> filled(rows.begin(), rows.end());
      fill_in(part, tensors, filled);
      return goes_on = visit(filled);
    });
  }
}

bool knows_a_loss(const Snapshot& trace) {
  bool is_known = false;
  visit_steps_with_losses(trace, {}, [&](std::span<const StepRow> rows) {
    is_known = std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return row.loss_known; });
    return !is_known;
  });
  return is_known;
}

}  // namespace ulpscope
