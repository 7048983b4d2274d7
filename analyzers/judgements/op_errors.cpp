#include "ulpscope/analyzers/judgements/op_errors.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Rows {
  std::vector<double> injected, floor, over_floor;
  std::set<uint64_t> steps;
  OpError error;
};

}  // namespace

std::vector<OpError> op_errors_of(const RunFacts& facts) {
  std::map<uint32_t, Rows> outputs;
  const Selection& selection = facts.selection;
  facts.context.trace.visit_measures(facts.context.options.steps, [&](std::span<const MeasureRow> some) {
    for (const MeasureRow& row : some) {
      if (!selection.contains(row.tensor)) continue;
      const bool is_injected = row.name == kInjectedError;
      if (!is_injected && row.name != kRoundingFloor && row.name != kFiniteInOne) continue;
      Rows& rows = outputs[row.tensor];
      if (row.name == kFiniteInOne) {
        rows.error.finite_in_one += static_cast<uint64_t>(row.value);
      } else if (is_injected) {
        rows.injected.push_back(row.value);
        rows.steps.insert(row.step);
        if (row.value >= rows.error.largest) {
          rows.error.largest = row.value;
          rows.error.largest_step = row.step;
        }
      } else {
        rows.floor.push_back(row.value);  // it stands behind the error
        const double error = rows.injected.empty() ? 0 : rows.injected.back();
        rows.over_floor.push_back(row.value > 0 ? error / row.value : error > 0 ? std::numeric_limits<double>::infinity() : 1);
      }
    }
    return true;
  });
  std::vector<OpError> errors;
  for (auto& [tensor, rows] : outputs) {
    OpError& error = rows.error;
    error.tensor = tensor;
    error.rows = rows.injected.size();
    error.steps = rows.steps.size();
    if (rows.steps.empty()) continue;
    error.first_step = *rows.steps.begin();
    error.injected = median(std::move(rows.injected));
    error.floor = median(std::move(rows.floor));
    error.over_floor = median(std::move(rows.over_floor));
    errors.push_back(error);
  }
  std::stable_sort(errors.begin(), errors.end(), [](const OpError& a, const OpError& b) { return a.injected > b.injected; });
  return errors;
}

}  // namespace ulpscope
