#include "ulpscope/analyzers/judgements/op_errors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/analyzers/totals/measures_of_passes.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

OpError error_of(uint32_t tensor, const MeasuresOfPasses::mapped_type& passes) {
  OpError error;
  error.tensor = tensor;
  std::vector<double> injected, floors, over_floor;
  std::set<uint64_t> steps;
  for (const auto& [pass, values] : passes) {
    if (!values[0] || !values[1]) continue;
    const double of_op = *values[0], of_rounding = *values[1];
    injected.push_back(of_op);
    floors.push_back(of_rounding);
    over_floor.push_back(of_rounding > 0 ? of_op / of_rounding : of_op > 0 ? std::numeric_limits<double>::infinity() : 1);
    steps.insert(std::get<0>(pass));
    if (of_op < error.largest) continue;
    error.largest = of_op;
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
  std::vector<OpError> errors;
  for (const auto& [tensor, passes] : measures_of_passes(facts.context, {kInjectedError, kRoundingFloor}))
    if (const OpError error = error_of(tensor, passes); error.rows > 0) errors.push_back(error);
  std::stable_sort(errors.begin(), errors.end(), [](const OpError& a, const OpError& b) { return a.injected > b.injected; });
  return errors;
}

}  // namespace ulpscope
