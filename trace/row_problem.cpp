#include "ulpscope/trace/row_problem.h"

#include <fmt/format.h>

#include "ulpscope/trace/decode.h"

namespace ulpscope {

namespace {

template <typename Row>
std::string first_problem(const Row& row) {
  using namespace trace_detail;
  std::string problem;
  const auto check = [&](const auto& rule) {
    if (!problem.empty() || rule.holds(row)) return;
    std::string value;
    for_each_column<Row>([&](const auto& column, auto) {
      if constexpr (std::is_arithmetic_v<FieldOf<Row, decltype(column.get)>>)
        if (column.name == std::string_view(rule.column)) value = fmt::format("{} is {}; ", column.name, column.get(row));
    });
    problem = fmt::format("{}expected {}{}", value, value.empty() ? fmt::format("{} to be ", rule.column) : "", rule.expected);
  };
  std::apply([&](const auto&... rule) { (check(rule), ...); }, Rules<Row>::all);
  return problem;
}

}  // namespace

std::string problem_of(const RunInfo& run) { return first_problem(run); }
std::string problem_of(const SourceInfo& source) { return first_problem(source); }
std::string problem_of(const OpInfo& op) { return first_problem(op); }
std::string problem_of(const TensorInfo& tensor) { return first_problem(tensor); }
std::string problem_of(const TensorRow& row) {
  std::string problem = first_problem(row);
  if (problem.empty() && row.known == StatisticsLevel::values &&
      trace_detail::total_of(row.statistics.histogram) != row.statistics.finite_nonzero())
    problem = fmt::format("the histogram has {} elements; expected the {} finite nonzero ones",
                          trace_detail::total_of(row.statistics.histogram), row.statistics.finite_nonzero());
  return problem;
}
std::string problem_of(const ParameterRow& row) { return first_problem(row); }
std::string problem_of(const SumRow& row) { return first_problem(row); }
std::string problem_of(const StepRow& row) { return first_problem(row); }

}  // namespace ulpscope
