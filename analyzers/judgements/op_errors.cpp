#include "ulpscope/analyzers/judgements/op_errors.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

// One row is an output in a pass.
struct Row {
  std::optional<double> injected, floor;
};
using Pass = std::tuple<uint64_t, uint32_t, uint8_t>;  // step, micro-batch, loss

OpError error_of(uint32_t tensor, const std::map<Pass, Row>& rows) {
  OpError error;
  error.tensor = tensor;
  std::vector<double> injected, floors, over_floor;
  std::set<uint64_t> steps;
  for (const auto& [pass, row] : rows) {
    if (!row.injected || !row.floor) continue;
    injected.push_back(*row.injected);
    floors.push_back(*row.floor);
    over_floor.push_back(*row.floor > 0      ? *row.injected / *row.floor
                         : *row.injected > 0 ? std::numeric_limits<double>::infinity()
                                             : 1);
    steps.insert(std::get<0>(pass));
    if (*row.injected < error.largest) continue;
    error.largest = *row.injected;
    error.largest_step = std::get<0>(pass);
  }
  error.rows = injected.size();
  error.steps = steps.size();
  if (injected.empty()) return error;
  error.first_step = *steps.begin();
  error.injected = median(std::move(injected));
  error.floor = median(std::move(floors));
  error.over_floor = median(std::move(over_floor));
  return error;
}

}  // namespace

std::vector<OpError> op_errors_of(const RunFacts& facts) {
  std::map<uint32_t, std::map<Pass, Row>> outputs;
  facts.context.trace.visit_measures(facts.context.options.steps, [&](std::span<const MeasureRow> some) {
    for (const MeasureRow& row : some) {
      const bool is_injected = row.name == kInjectedError;
      if ((!is_injected && row.name != kRoundingFloor) || !facts.selection.contains(row.tensor) || !(row.value >= 0)) continue;
      Row& of_pass = outputs[row.tensor][{row.step, row.micro_batch, row.loss_index}];
      (is_injected ? of_pass.injected : of_pass.floor) = row.value;
    }
    return true;
  });
  std::vector<OpError> errors;
  for (const auto& [tensor, rows] : outputs)
    if (const OpError error = error_of(tensor, rows); error.rows > 0) errors.push_back(error);
  std::stable_sort(errors.begin(), errors.end(), [](const OpError& a, const OpError& b) { return a.injected > b.injected; });
  return errors;
}

}  // namespace ulpscope
