#include "ulpscope/analyzers/history/tensor_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/totals/step_columns.h"
#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

Table tensor_flow(const AnalysisContext& context, uint32_t tensor) {
  const Selection& selection = context.selection;
  Table table{"flow",
              fmt::format("{}: what it was made of, and what used it", selection.name(tensor)),
              {{"relation", ColumnKind::text}, {"tensor", ColumnKind::text}, {"phase", ColumnKind::text}, {"op", ColumnKind::text}},
              {},
              0,
              ""};
  const auto add = [&](const char* relation, uint32_t other) {
    if (!selection.contains(other)) return;
    table.rows.push_back({selection.key(other),
                          {std::string(relation), selection.name(other), std::string(name_of(selection.op(other).phase)),
                           selection.op(other).name}});
  };
  const uint32_t op = selection.tensor(tensor).op;
  std::set<uint32_t> seen;
  for (const GraphEdge& edge : context.trace.graph().inputs(op))
    for (const uint32_t other : context.graph.made_by(edge.producer, edge.slot))
      if (seen.insert(other).second) add("made of", other);
  seen.clear();
  for (const GraphEdge& edge : context.trace.graph().uses(op)) {
    if (edge.slot != selection.tensor(tensor).slot) continue;
    for (const uint32_t other : context.graph.made_by(edge.consumer))
      if (seen.insert(other).second) add("used by", other);
  }
  return table;
}

Plot step_histograms(const AnalysisContext& context, uint64_t step) {
  Plot plot{"step_histograms",
            fmt::format("Exponents of the values of step {}", step),
            PlotKind::histogram,
            {"exponent", Unit::exponent},
            {"elements", Unit::count}};
  std::vector<std::pair<RowPosition, Series>> rows;
  for (const TracePart& part : context.parts) {
    if (step < part.steps.first || step >= part.steps.last) continue;
    const auto place = static_cast<size_t>(&part - context.parts.data());
    context.trace.of_part(place).visit_rows({step, step + 1}, [&](std::span<const TensorRow> found) {
      for (const TensorRow& row : found) {
        if (!context.selection.contains(row)) continue;
        const RowPosition position = position_of(row, part.run.rank);
        Series series{context.selection.name(row.tensor), context.selection.key(row.tensor, position), {}, {}};
        if (row.known == StatisticsLevel::values) {
          const auto [first, last] = occupied_bins(row.statistics);
          for (int bin = first; bin <= last; ++bin) {
            series.x.push_back(ExponentHistogram::exponent(bin));
            series.y.push_back(static_cast<double>(row.statistics.histogram.bins[static_cast<size_t>(bin)]));
          }
        }
        rows.emplace_back(position, std::move(series));
      }
      return true;
    });
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return comes_first_by_rank(a.first, b.first); });
  for (auto& [position, series] : rows) plot.series.push_back(std::move(series));
  return plot;
}

std::vector<Plot> measure_plots(const AnalysisContext& context, const StepRange& steps) {
  std::map<std::string, std::map<uint32_t, std::map<uint64_t, double>>> measures;  // by name, tensor and step
  context.trace.visit_measures(steps, [&](std::span<const MeasureRow> rows) {
    for (const MeasureRow& row : rows) {
      if (!context.selection.contains(row.tensor) || std::isnan(row.value)) continue;
      const auto [place, is_new] = measures[row.name][row.tensor].try_emplace(row.step, row.value);
      if (!is_new) place->second = std::max(place->second, row.value);
    }
    return true;
  });
  std::vector<Plot> plots;
  for (const auto& [name, tensors] : measures) {
    uint64_t first = UINT64_MAX, last = 0;
    for (const auto& [tensor, values] : tensors) {
      first = std::min(first, values.begin()->first);
      last = std::max(last, values.rbegin()->first);
    }
    const StepColumns columns = StepColumns::over(first, last, kMostHeatmapColumns);
    Plot& plot = plots.emplace_back();
    plot.name = "measure_" + name;
    plot.title = fmt::format("{}, as it was measured of each tensor over the steps", shown_name(name));
    plot.kind = PlotKind::heatmap;
    plot.x = {"step", Unit::count};
    plot.y = {name, Unit::none};
    plot.rows = {"tensor", Unit::none};
    plot.x_end = columns.end();
    for (const auto& [tensor, values] : tensors) {
      if (plot.series.size() == kMostHeatmapRows) {
        plot.series_left_out = tensors.size() - plot.series.size();
        break;
      }
      Series& row = plot.series.emplace_back();
      row.name = context.selection.name(tensor);
      row.key = context.selection.key(tensor);
      columns.begin(row);
      for (const auto& [step, value] : values) columns.keep_largest(row, step, value);
    }
  }
  return plots;
}

}  // namespace ulpscope
