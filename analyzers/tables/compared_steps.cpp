#include "ulpscope/analyzers/tables/compared_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/totals/step_columns.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr uint64_t kStepsComparedAtOnce = 32;

// A row of an output in a step, in either run.
struct Place {
  uint64_t step = 0;
  OutputId output;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
};

// What is compared of a row, without its scales.
struct Numbers {
  StatisticsLevel known = StatisticsLevel::none;
  double scale = 1;
  double count = 0, nan = 0, positive_infinity = 0, negative_infinity = 0, zeros = 0, negatives = 0;
  double largest = 0, smallest = 0, sum = 0, sum_of_squares = 0;
  bool has_nonfinite = false;

  Numbers(const TensorRow& row, DType dtype) : known(row.known), scale(row.scale * row.quantization_scale) {
    const TensorStatistics& of = row.statistics;
    count = static_cast<double>(of.count);
    nan = static_cast<double>(of.nan);
    positive_infinity = static_cast<double>(of.positive_infinity);
    negative_infinity = static_cast<double>(of.negative_infinity);
    zeros = static_cast<double>(of.zeros);
    negatives = static_cast<double>(of.negatives);
    largest = of.largest / scale;
    smallest = of.smallest / scale;
    sum = of.sum / scale;
    sum_of_squares = of.sum_of_squares / scale / scale;
    has_nonfinite = stored_nonfinite(row, dtype) > 0;
  }
};

struct Difference {
  const char* what;
  double a, b;
};

// A division by a power of two is exact; of others what is left is not compared bit by bit.
bool is_exact(const Numbers& a, const Numbers& b) {
  const auto is_power_of_two = [](double scale) {
    int exponent = 0;
    return std::frexp(scale, &exponent) == 0.5;
  };
  return a.scale == b.scale || (is_power_of_two(a.scale) && is_power_of_two(b.scale));
}

std::optional<Difference> first_difference(const Numbers& a, const Numbers& b) {
  const StatisticsLevel known = std::min(a.known, b.known);
  struct Field {
    const char* what;
    double Numbers::*number;
    StatisticsLevel level;
    bool is_scaled;
  };
  static constexpr Field kFields[] = {
      {"count", &Numbers::count, StatisticsLevel::health, false},
      {"NaN", &Numbers::nan, StatisticsLevel::health, false},
      {"+Inf", &Numbers::positive_infinity, StatisticsLevel::health, false},
      {"-Inf", &Numbers::negative_infinity, StatisticsLevel::health, false},
      {"zeros", &Numbers::zeros, StatisticsLevel::health, false},
      {"largest", &Numbers::largest, StatisticsLevel::values, true},
      {"smallest", &Numbers::smallest, StatisticsLevel::values, true},
      {"negatives", &Numbers::negatives, StatisticsLevel::values, false},
      {"sum", &Numbers::sum, StatisticsLevel::values, true},
      {"sum of squares", &Numbers::sum_of_squares, StatisticsLevel::values, true},
  };
  for (const Field& field : kFields) {
    if (known < field.level || (field.is_scaled && !is_exact(a, b))) continue;
    const double first = a.*field.number, second = b.*field.number;
    if (std::bit_cast<uint64_t>(first) != std::bit_cast<uint64_t>(second)) return Difference{field.what, first, second};
  }
  return std::nullopt;
}

// Of an output in a step, whose micro-batches and losses add up.
struct Norms {
  double a = 0, b = 0;  // squares
  bool is_known = true, nonfinite_a = false, nonfinite_b = false;

  void add(const Numbers& first, const Numbers& second) {
    is_known = is_known && first.known == StatisticsLevel::values && second.known == StatisticsLevel::values;
    a += first.sum_of_squares;
    b += second.sum_of_squares;
    nonfinite_a = nonfinite_a || first.has_nonfinite;
    nonfinite_b = nonfinite_b || second.has_nonfinite;
  }
  double difference() const {
    if (nonfinite_a && nonfinite_b) return kUnknown;  // what of them is finite need not be the same elements
    if (nonfinite_a != nonfinite_b) return 1;
    if (!is_known) return kUnknown;
    const double first = std::sqrt(a), second = std::sqrt(b), larger = std::max(first, second);
    return larger == 0 ? 0 : std::fabs(first - second) / larger;
  }
};

class Steps {
 public:
  Steps(const ComparedRuns& runs, const AnalysisOptions& options) : runs_(runs), options_(options) {}

  // Of one rank of each.
  void compare(const Snapshot& a, const Snapshot& b) {
    std::vector<uint64_t> steps;
    b.visit_steps(options_.steps, [&](std::span<const StepRow> some) {
      for (const StepRow& row : some) steps.push_back(row.step);
      return !options_.cancelled();
    });
    for (size_t at = 0; at < steps.size() && !options_.cancelled();) {
      const size_t end = std::min(at + kStepsComparedAtOnce, steps.size());
      compare(a, b, {steps[at], steps[end - 1] + 1});
      at = end;
    }
  }

  std::optional<ComparedSteps::First> first;
  uint64_t rows = 0;
  std::map<OutputId, std::map<uint64_t, double>> differences;  // by step
  std::vector<std::pair<OutputId, uint32_t>> outputs;          // in order of execution, with a tensor of the second run

 private:
  void compare(const Snapshot& a, const Snapshot& b, StepRange range) {
    std::map<Place, Numbers> recorded;
    each_row(a, runs_.a.selection(), range,
             [&](const Place& place, const TensorRow& row, DType dtype) { recorded.emplace(place, Numbers(row, dtype)); });
    std::map<std::pair<uint64_t, OutputId>, Norms> norms;
    each_row(b, runs_.b.selection(), range, [&](const Place& place, const TensorRow& row, DType dtype) {
      const auto found = recorded.find(place);
      if (found == recorded.end() || found->second.known == StatisticsLevel::none || row.known == StatisticsLevel::none) return;
      const Numbers numbers(row, dtype);
      ++rows;
      if (!first || row.step < first->step) {
        if (const auto differs = first_difference(found->second, numbers))
          first = ComparedSteps::First{row.step, row.tensor, differs->what, differs->a, differs->b};
      }
      norms[{row.step, place.output}].add(found->second, numbers);
      if (differences.try_emplace(place.output).second) outputs.emplace_back(place.output, row.tensor);
    });
    for (const auto& [place, both] : norms) {
      double& largest = differences[place.second].try_emplace(place.first, kUnknown).first->second;
      if (const double difference = both.difference(); !(difference <= largest) && !std::isnan(difference)) largest = difference;
    }
  }

  template <typename Visit>
  static void each_row(const Snapshot& trace, const Selection& selection, StepRange range, Visit&& visit) {
    trace.visit_rows_without_histograms(range, [&](std::span<const TensorRow> some) {
      for (const TensorRow& row : some) {
        if (!selection.contains(row)) continue;
        // Scalars are losses, which are compared apart, and factors that follow the loss scale.
        const TensorInfo& tensor = selection.tensor(row.tensor);
        if (!is_float(tensor.dtype) || tensor.shape.empty()) continue;
        visit(Place{row.step, selection.output(row.tensor), row.micro_batch, row.loss_index}, row, tensor.dtype);
      }
      return true;
    });
  }

  const ComparedRuns& runs_;
  const AnalysisOptions& options_;
};

double largest_of(const std::map<uint64_t, double>& by_step) {
  double largest = 0;
  for (const auto& [step, difference] : by_step) largest = std::max(largest, std::isnan(difference) ? 0 : difference);
  return largest;
}

}  // namespace

ComparedSteps compare_steps(const ComparedRuns& runs, const AnalysisOptions& options, size_t limit) {
  Steps steps(runs, options);
  for (const auto& [rank, other] : common_ranks(runs.a.trace(), runs.b.trace()))
    steps.compare(runs.a.trace().of_rank(rank), runs.b.trace().of_rank(other));
  ComparedSteps result{steps.first, steps.rows, {}};
  Plot& plot = result.plot;
  plot.name = "differences";
  plot.kind = PlotKind::heatmap;
  plot.x = {"step", Unit::count};
  plot.y = {"difference", Unit::share};
  plot.rows = {"output", Unit::none};

  std::vector<std::pair<OutputId, uint32_t>> different;
  uint64_t begin = UINT64_MAX, last = 0;
  for (const auto& output : steps.outputs) {
    const std::map<uint64_t, double>& by_step = steps.differences.at(output.first);
    if (by_step.empty()) continue;
    begin = std::min(begin, by_step.begin()->first);
    last = std::max(last, by_step.rbegin()->first);
    if (largest_of(by_step) > 0) different.push_back(output);
  }
  // Where there is no room for all, those with the largest differences.
  const size_t all = different.size(), most = limit > 0 ? std::min(limit, kMostHeatmapRows) : kMostHeatmapRows;
  if (all > most) {
    std::vector<double> largest;
    for (const auto& output : different) largest.push_back(largest_of(steps.differences.at(output.first)));
    std::vector<double> sorted = largest;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(most) - 1, sorted.end(), std::greater<>());
    const double least = sorted[most - 1];
    std::vector<std::pair<OutputId, uint32_t>> kept;
    auto at_least = static_cast<size_t>(std::count_if(largest.begin(), largest.end(), [&](double each) { return each > least; }));
    for (size_t i = 0; i < all; ++i) {
      if (largest[i] > least || (largest[i] == least && at_least++ < most)) kept.push_back(different[i]);
    }
    different = std::move(kept);
  }
  plot.series_left_out = all - different.size();
  plot.title = fmt::format("Relative difference of norms, ||a| - |b|| / max(|a|, |b|), of {} of {} outputs that differ",
                           different.size(), all);
  if (different.empty()) return result;
  const StepColumns columns = StepColumns::over(begin, last, kMostHeatmapColumns);
  plot.x_end = columns.end();
  for (const auto& [output, tensor] : different) {
    Series& row = plot.series.emplace_back();
    row.key = runs.b.output_key(tensor);
    row.name = row.key.name;
    if (steps.first && runs.b.selection().output(steps.first->tensor) == output) row.name.insert(0, "(first) ");
    columns.begin(row);
    for (const auto& [step, difference] : steps.differences.at(output)) columns.keep_largest(row, step, difference);
  }
  if (steps.first) {
    const auto at = static_cast<double>(steps.first->step);
    plot.marks.push_back({at, at,
                          fmt::format("first difference: {}, {} {} and {}", runs.b.selection().output_name(steps.first->tensor),
                                      steps.first->what, steps.first->a, steps.first->b),
                          Severity::warning});
  }
  return result;
}

}  // namespace ulpscope
