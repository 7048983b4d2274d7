#include "ulpscope/analyzers/history/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/what_if.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// Which order is worse: little headroom, and else much of anything.
bool worse_is_less(Measured measured) { return measured == Measured::headroom; }

Axis step_axis() { return {"step", Unit::count}; }

std::optional<double> known(double value) { return std::isnan(value) ? std::nullopt : std::optional(value); }

// A series of what each column has. What is not known is left out.
Series series_of(std::string name, const History& history, const std::function<std::optional<double>(const StepCell&)>& value) {
  Series series{std::move(name), {}, {}, {}};
  const StepColumns columns = history.columns();
  for (size_t i = 0; i < columns.count; ++i) {
    if (history.step(i).steps == 0) continue;
    const std::optional<double> y = value(history.step(i));
    if (!y) continue;
    series.x.push_back(static_cast<double>(columns.step(i)));
    series.y.push_back(*y);
  }
  return series;
}

// What happened where, one mark a column and kind: many of one kind in a column are counted.
std::vector<Mark> event_marks(const History& history, const AnalysisContext& context) {
  const StepColumns columns = history.columns();
  std::map<std::pair<uint64_t, EventKind>, std::pair<Mark, size_t>> marks;
  const bool has_ranks = context.trace.ranks().size() > 1;
  for (const EventRow& event : context.trace.events()) {
    const uint64_t column = event.step / columns.width;
    if (columns.count == 0 || column < columns.first || column >= columns.first + columns.count) continue;
    const std::string tensor = event.tensor >= 0 ? context.selection.name(static_cast<uint32_t>(event.tensor)) : std::string();
    std::string text;
    Severity severity = Severity::info;
    switch (event.kind) {
      case EventKind::scale_backoff:
        text = fmt::format("loss scale down to {}", event.value);
        if (!tensor.empty()) text += fmt::format(": {}, {}", tensor, count_of(event.count, "element"));
        severity = Severity::warning;
        break;
      case EventKind::memory_changed:
        text = fmt::format("{} changed in memory", tensor);
        severity = Severity::error;
        break;
      case EventKind::stopped:
      case EventKind::level_lowered:
      case EventKind::cut_short:
        text = event.text;
        severity = Severity::warning;
        break;
      default:
        continue;
    }
    if (has_ranks) text += fmt::format(" (rank {})", event.rank);
    const auto step = static_cast<double>(event.step);
    const auto [place, is_new] = marks.try_emplace({column, event.kind}, Mark{step, step, std::move(text), severity}, 1);
    if (!is_new) {
      place->second.first.to = std::max(place->second.first.to, step);
      ++place->second.second;
    }
  }
  std::vector<Mark> all;
  for (auto& [key, entry] : marks) {
    auto& [mark, count] = entry;
    if (count > 1) mark.text = fmt::format("{} times {}; first {}", count, name_of(key.second), mark.text);
    all.push_back(std::move(mark));
  }
  return all;
}

double binary_exponent(double scale) { return scale > 0 ? std::log2(scale) : kUnknown; }

}  // namespace

std::vector<Plot> course_plots(const History& history, const AnalysisContext& context) {
  std::vector<Plot> plots;
  const StepColumns columns = history.columns();
  const auto add = [&](const char* name, const std::string& title, Axis y, std::vector<Series> series) {
    std::erase_if(series, [](const Series& each) { return each.x.empty(); });
    if (series.empty()) return;
    Plot& plot = plots.emplace_back();
    plot.name = name;
    plot.title = title;
    plot.kind = PlotKind::steps;
    plot.x = step_axis();
    plot.y = std::move(y);
    plot.series = std::move(series);
    plot.x_end = columns.end();
  };
  const auto of = [&](const std::string& name, auto&& value) { return series_of(name, history, value); };
  const bool is_wide = columns.width > 1;
  // What a column of several steps has of a number that each has one of.
  const auto named = [&](const char* name, const char* what) {
    return is_wide ? fmt::format("{}, {} of {} steps", name, what, columns.width) : name;
  };

  std::vector<Series> loss{of(named("loss", "last"), [](const StepCell& cell) { return cell.loss; })};
  if (is_wide) loss.push_back(of("highest", [](const StepCell& cell) { return cell.highest_loss; }));
  add("loss", "Loss", {"loss", Unit::none}, std::move(loss));
  std::vector<Series> norm{of(named("gradient norm", "last"), [](const StepCell& cell) { return cell.gradient_norm; })};
  if (is_wide) norm.push_back(of("highest", [](const StepCell& cell) { return cell.highest_norm; }));
  add("gradient_norm", "Norm of the gradients", {"norm", Unit::none}, std::move(norm));

  const auto is_scaled = [&] {
    for (size_t i = 0; i < columns.count; ++i)
      if (history.step(i).steps > 0 && (history.step(i).lowest_scale != 1 || history.step(i).highest_scale != 1)) return true;
    return false;
  };
  if (is_scaled()) {
    std::vector<Series> scale{
        of(named("loss scale", "last"), [](const StepCell& cell) { return known(binary_exponent(cell.scale)); })};
    if (is_wide) {
      scale.push_back(of("highest", [](const StepCell& cell) { return known(binary_exponent(cell.highest_scale)); }));
      scale.push_back(of("lowest", [](const StepCell& cell) { return known(binary_exponent(cell.lowest_scale)); }));
    }
    add("loss_scale", "Loss scale", {"scale", Unit::exponent}, std::move(scale));
    plots.back().marks = event_marks(history, context);
  } else if (!plots.empty()) {
    plots.front().marks = event_marks(history, context);
  }
  // What adds up in a column.
  const auto in_each = [&](const char* title) {
    return is_wide ? fmt::format("{}, in {} steps each", title, columns.width) : std::string(title);
  };
  add("skipped_steps", in_each("Skipped steps"), {"steps", Unit::count},
      {of("skipped", [](const StepCell& cell) { return static_cast<double>(cell.skipped); })});

  // Of all tensors together, column by column.
  Series nonfinite{"NaN and Inf", {}, {}, {}}, flushed{"flushed", {}, {}, {}}, overflowed{"overflowed", {}, {}, {}};
  for (size_t column = 0; column < columns.count; ++column) {
    HistoryCell all, gradients;
    for (uint32_t tensor = 0; tensor < history.tensors(); ++tensor) {
      const HistoryCell cell = history.cell(tensor, column);
      all.add(cell);
      if (is_gradient(context.selection.tensor(tensor).role)) gradients.add(cell);
    }
    if (all.rows == 0) continue;
    const auto x = static_cast<double>(columns.step(column));
    nonfinite.x.push_back(x);
    nonfinite.y.push_back(static_cast<double>(all.nonfinite));
    for (const auto& [series, measured] : {std::pair{&flushed, Measured::flushed}, std::pair{&overflowed, Measured::overflowed}}) {
      if (const double y = gradients.value(measured); !std::isnan(y)) {
        series->x.push_back(x);
        series->y.push_back(y);
      }
    }
  }
  add("nonfinite", in_each("NaN and infinities, of all tensors"), {"elements", Unit::count}, {std::move(nonfinite)});
  add("gradients", in_each("Gradients in 16 and 8 bits: what their roundings took"), {"share", Unit::share},
      {std::move(flushed), std::move(overflowed)});
  add("learning_rate", "Learning rate", {"rate", Unit::none},
      {of(named("learning rate", "last"), [](const StepCell& cell) { return known(cell.learning_rate); })});
  add("seconds", "Time of a step", {"time", Unit::seconds},
      {of(named("time", "mean"), [](const StepCell& cell) { return cell.seconds / static_cast<double>(cell.steps); })});
  add("memory", "Peak memory", {"memory", Unit::bytes}, {of(named("memory", "most"), [](const StepCell& cell) {
        return known(cell.peak_memory > 0 ? static_cast<double>(cell.peak_memory) : kUnknown);
      })});
  return plots;
}

std::vector<uint32_t> ordered_tensors(const History& history, const AnalysisContext& context, Measured measured,
                                      TensorOrder order) {
  std::vector<std::pair<double, uint32_t>> with_worst;
  for (uint32_t tensor = 0; tensor < history.tensors(); ++tensor) {
    if (!context.selection.contains(tensor)) continue;
    double value = history.total(tensor).value(measured);
    if (std::isnan(value)) continue;
    with_worst.emplace_back(worse_is_less(measured) ? value : -value, tensor);
  }
  if (order == TensorOrder::worst) std::stable_sort(with_worst.begin(), with_worst.end());
  std::vector<uint32_t> tensors;
  for (const auto& [value, tensor] : with_worst) tensors.push_back(tensor);
  return tensors;
}

Plot tensor_heatmap(const History& history, const AnalysisContext& context, Measured measured, std::span<const uint32_t> tensors) {
  Plot plot;
  plot.name = name_of(measured);
  plot.title = fmt::format("{} of each tensor over the steps",
                           measured == Measured::largest_exponent ? "Largest exponent" : name_of(measured));
  plot.title[0] = static_cast<char>(std::toupper(plot.title[0]));
  plot.kind = PlotKind::heatmap;
  plot.x = step_axis();
  plot.y = {name_of(measured), unit_of(measured)};
  plot.rows = {"tensor", Unit::none};
  const StepColumns columns = history.columns();
  plot.x_end = columns.end();
  for (const uint32_t tensor : tensors) {
    Series& row = plot.series.emplace_back();
    row.name = context.selection.name(tensor);
    row.key = context.selection.key(tensor);
    for (size_t column = 0; column < columns.count; ++column) {
      row.x.push_back(static_cast<double>(columns.step(column)));
      row.y.push_back(history.cell(tensor, column).value(measured));
    }
  }
  return plot;
}

Plot exponent_heatmap(const Snapshot& trace, uint32_t tensor, const std::string& name, const ExponentPlotOptions& options) {
  // Counts by column and exponent; columns get wider as steps come.
  uint64_t width = 1;
  bool is_quantized = false;
  std::map<uint64_t, std::map<int, double>> columns;
  trace.visit_history(tensor, options.steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.known != StatisticsLevel::values) continue;
      // Of FP8 the values as they are stored: what its limits are about, and the only ones whose binades are known.
      const double scale = options.is_true ? row.scale : 1.0;
      is_quantized |= row.quantization_scale != 1;
      int exponent = 0;
      if (std::frexp(scale, &exponent) != 0.5) continue;
      const int shift = exponent - 1;
      while (!columns.empty() &&
             std::max(columns.rbegin()->first, row.step / width) - columns.begin()->first >= options.most_columns) {
        width *= 2;
        std::map<uint64_t, std::map<int, double>> wider;
        for (const auto& [column, counts] : columns)
          for (const auto& [at, count] : counts) wider[column / 2][at] += count;
        columns = std::move(wider);
      }
      std::map<int, double>& counts = columns[row.step / width];
      const auto [first, last] = occupied_bins(row.statistics);
      for (int bin = first; bin <= last; ++bin) {
        if (const uint64_t count = row.statistics.histogram.bins[bin])
          counts[ExponentHistogram::exponent(bin) - shift] += static_cast<double>(count);
      }
    }
    return true;
  });

  Plot plot;
  plot.name = "exponents_over_steps";
  plot.title =
      fmt::format("{}: exponents of its values over the steps{}{}", name, is_quantized ? ", times their quantization scale" : "",
                  options.is_true ? ", without the loss scale" : "");
  plot.kind = PlotKind::heatmap;
  plot.x = step_axis();
  plot.y = {"elements", Unit::count};
  plot.rows = {"exponent", Unit::exponent};
  int lowest = 0, highest = -1;
  for (const auto& [column, counts] : columns) {
    if (counts.empty()) continue;
    lowest = highest < lowest ? counts.begin()->first : std::min(lowest, counts.begin()->first);
    highest = std::max(highest < lowest ? counts.rbegin()->first : highest, counts.rbegin()->first);
  }
  if (highest < lowest) return plot;
  for (const FloatFormat* format : options.formats) {
    const bool only = options.formats.size() == 1;
    const auto limit = [&](const char* what, int exponent) {
      plot.limits.push_back({only ? what : fmt::format("{} {}", format->name, what), exponent});
      lowest = std::min(lowest, exponent - 1);
      highest = std::max(highest, exponent);
    };
    limit("subnormal", format->smallest_exponent() - 1);
    limit("normal", format->smallest_normal_exponent());
    limit("overflow", format->largest_exponent() + 1);
  }
  std::sort(plot.limits.begin(), plot.limits.end(), [](const Limit& a, const Limit& b) { return a.exponent < b.exponent; });
  plot.first_exponent = lowest;
  const uint64_t first_column = columns.begin()->first;
  const StepColumns all{width, first_column, static_cast<size_t>(columns.rbegin()->first - first_column + 1)};
  plot.x_end = all.end();
  for (int exponent = lowest; exponent <= highest; ++exponent) {
    Series& row = plot.series.emplace_back();
    row.name = fmt::format("2^{}", exponent);
    all.begin(row);
    for (const auto& [column, counts] : columns)
      if (const auto found = counts.find(exponent); found != counts.end()) row.y[column - first_column] = found->second;
  }
  return plot;
}

Table step_table(const AnalysisContext& context, uint64_t step) {
  Table table{"step",
              fmt::format("Step {}, in order of execution", step),
              {{"tensor", ColumnKind::text},
               {"phase", ColumnKind::text},
               {"op", ColumnKind::text},
               {"type", ColumnKind::text},
               {"elements", ColumnKind::number, Unit::count},
               {"nonfinite", ColumnKind::number, Unit::count},
               {"zero", ColumnKind::number, Unit::share},
               {"flushed", ColumnKind::number, Unit::share},
               {"subnormal", ColumnKind::number, Unit::share},
               {"overflowed", ColumnKind::number, Unit::share},
               {"smallest"},
               {"largest"},
               {"headroom", ColumnKind::number, Unit::bits}},
              {},
              0,
              ""};
  const bool has_ranks = context.trace.ranks().size() > 1;
  bool has_micro_batches = false;
  if (has_ranks) table.columns.insert(table.columns.begin() + 1, {"rank", ColumnKind::number, Unit::count});
  std::vector<std::pair<RowPosition, TableRow>> rows;
  for (const TracePart& part : context.parts) {
    if (step < part.steps.first || step >= part.steps.last) continue;
    const auto place = static_cast<size_t>(&part - context.parts.data());
    context.trace.of_part(place).visit_rows_without_histograms({step, step + 1}, [&](std::span<const TensorRow> found) {
      for (const TensorRow& row : found) {
        if (!context.selection.contains(row)) continue;
        const TensorInfo& tensor = context.selection.tensor(row.tensor);
        const TensorStatistics& statistics = row.statistics;
        const RowPosition position = position_of(row, part.run.rank);
        const bool has_counts = row.known != StatisticsLevel::none, has_values = row.known == StatisticsLevel::values;
        const auto seen = as_seen(row);
        const auto count = [&](uint64_t n) { return has_counts ? count_cell(n) : Cell(Unknown{}); };
        const auto share_of = [&](CountBounds RoundingBounds::*what) {
          if (!is_narrow(tensor.dtype)) return Cell(NotApplicable{});
          return seen ? share_cell((*seen).*what, seen->base) : Cell(Unknown{});
        };
        const auto value = [&](double magnitude) {
          return !has_values ? Cell(Unknown{}) : statistics.largest > 0 ? Cell(magnitude) : Cell(NotApplicable{});
        };
        const double room =
            has_values && is_float(tensor.dtype) ? headroom(*info(tensor.dtype).format, statistics.largest) : kUnknown;
        rows.emplace_back(
            position, TableRow{context.selection.key(row.tensor, position),
                               {context.selection.name(row.tensor), std::string(name_of(context.selection.op(row.tensor).phase)),
                                context.selection.op(row.tensor).name, std::string(info(tensor.dtype).name),
                                count(statistics.count), count(stored_nonfinite(row, tensor.dtype)),
                                has_counts ? share_cell({statistics.zeros, statistics.zeros}, statistics.count) : Cell(Unknown{}),
                                share_of(&RoundingBounds::flushed), share_of(&RoundingBounds::subnormal),
                                share_of(&RoundingBounds::overflowed), value(statistics.smallest), value(statistics.largest),
                                !has_values        ? Cell(Unknown{})
                                : std::isnan(room) ? Cell(NotApplicable{})
                                                   : Cell(room)}});
        has_micro_batches = has_micro_batches || row.micro_batch > 0;
        std::vector<Cell>& cells = rows.back().second.cells;
        if (has_ranks) cells.insert(cells.begin() + 1, count_cell(static_cast<uint64_t>(part.run.rank)));
      }
      return true;
    });
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return comes_first_by_rank(a.first, b.first); });
  const auto behind_rank = has_ranks ? 2 : 1;
  if (has_micro_batches)
    table.columns.insert(table.columns.begin() + behind_rank, {"micro_batch", ColumnKind::number, Unit::count});
  for (auto& [position, row] : rows) {
    if (has_micro_batches) row.cells.insert(row.cells.begin() + behind_rank, count_cell(position.micro_batch));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace ulpscope
