#include "ulpscope/analyzers/judgements/leap.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

constexpr double kLeap = 100;          // times the largest update before
constexpr uint64_t kStepsBefore = 10;  // that have to have had updates

bool losses_grew_before(const RunFacts& facts, const Snapshot& of_rank, uint64_t step) {
  std::vector<double> last;
  const uint64_t begin = step - std::min<uint64_t>(step, kEndLosses);
  for (const StepLoss& one : known_losses(of_rank, {std::max(begin, facts.context.options.steps.first), step}))
    last.push_back(one.loss);
  const StepTotals& steps = facts.steps();
  return last.empty() || steps.first_losses.empty() || !(median(last) <= 2 * median(steps.first_losses));
}

std::optional<Leap::Tensor> first_out_of_line(const RunFacts& facts, const Snapshot& of_rank, uint64_t step) {
  constexpr double kOutOfLine = 30;
  std::vector<double> before(facts.selection.size());
  std::optional<Leap::Tensor> first;
  of_rank.visit_rows_without_histograms(
      {step - std::min<uint64_t>(step, kStepsBefore), step + 1}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows) {
          if (first || !facts.selection.contains(row.tensor) || row.known != StatisticsLevel::values) continue;
          const double largest = row.statistics.largest / row.scale / row.quantization_scale;
          double& most = before[row.tensor];
          if (row.step < step)
            most = std::max(most, largest);
          else if (most > 0 && (largest > kOutOfLine * most))
            first = {row.tensor, largest, most};
        }
        return true;
      });
  return first;
}

std::optional<Leap> leap_with(const RunFacts& facts, const UpdateRatio& large) {
  Leap leap{large};
  std::optional<uint64_t> last;
  const Snapshot of_rank = facts.context.trace.of_rank(large.rank);
  of_rank.visit_parameters({facts.context.options.steps.first, large.step}, [&](std::span<const ParameterRow> rows) {
    for (const ParameterRow& row : rows) {
      const std::optional<double> ratio = update_over_weight(row, facts.selection.tensor(row.tensor));
      if (!ratio || !(*ratio > 0)) continue;
      if (is_average_of_weights(facts.selection.tensor(row.tensor), facts.selection.op(row.tensor))) continue;
      leap.before = std::max(leap.before, *ratio);
      leap.steps_before += last != row.step;
      last = row.step;
    }
    return true;
  });
  if (leap.steps_before < kStepsBefore || !(large.ratio > kLeap * leap.before) || losses_grew_before(facts, of_rank, large.step))
    return std::nullopt;
  leap.first = first_out_of_line(facts, of_rank, large.step);
  return leap;
}

}  // namespace

std::optional<Leap> leap_of(const RunFacts& facts) {
  if (!facts.sees_updates()) return std::nullopt;
  const std::optional<UpdateRatio>& large = facts.updates().whole().first_large;
  if (!large) return std::nullopt;
  auto& kept = facts.memory.first_large;
  if (kept && kept->update == *large) return kept->leap;
  const std::optional<Leap> leap = leap_with(facts, *large);
  // Until there are as many of them as count, the first losses are not what later looks will see.
  if (facts.steps().first_losses.size() == StepTotals::kFirstLosses) kept = {*large, leap};
  return leap;
}

}  // namespace ulpscope
