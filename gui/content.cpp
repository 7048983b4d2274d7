#include "ulpscope/gui/content.h"

#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/verbs/export.h"

namespace ulpscope::gui {

namespace {

// Of text all of it; empty where nobody knows.
std::string csv_cell(const Cell& cell) {
  if (const auto* value = std::get_if<double>(&cell)) return exact_text(*value);
  if (const auto* value = std::get_if<int64_t>(&cell)) return fmt::format("{}", *value);
  if (const auto* value = std::get_if<bool>(&cell)) return *value ? "true" : "false";
  if (const auto* value = std::get_if<Interval>(&cell)) return exact_text(value->lower) + ".." + exact_text(value->upper);
  if (const auto* text = std::get_if<std::string>(&cell)) return csv_field(*text);
  if (const auto* text = std::get_if<LongText>(&cell)) return csv_field(text->text);
  return "";
}

template <typename Piece>
void add(std::vector<Piece>& pieces, const std::shared_ptr<const Piece>& piece) {
  if (piece) pieces.push_back(*piece);
}

}  // namespace

Report content(const ViewState& state, const Results& results) {
  Report report;
  const auto take = [&](const std::shared_ptr<const Report>& whole) {
    if (whole) report = *whole;
  };
  switch (state.view) {
    case View::overview:
      take(results.report);
      break;
    case View::why_nan:
      take(results.nan);
      break;
    case View::updates:
      take(results.updates);
      if (results.errors) report.plots.insert(report.plots.begin(), results.errors->begin(), results.errors->end());
      break;
    case View::compare:
      take(results.compare);
      break;
    case View::number:
      take(results.number);
      break;
    case View::ranges:
      if (follows_scale(state, results))
        report.plots.push_back(results.scaled->at(*state.scale));
      else
        add(report.plots, results.matrix);
      if (!state.tensor.empty()) add(report.plots, results.exponents);
      if (!state.tensor.empty() && state.scale) add(report.tables, results.scales);
      break;
    case View::timeline:
      break;
    case View::step:
      add(report.tables, results.step);
      if (!state.tensor.empty()) add(report.tables, results.flow);
      if (!state.tensor.empty()) add(report.plots, results.exponents);
      break;
  }
  if ((state.view == View::overview || state.view == View::timeline) && results.course)
    report.plots.insert(report.plots.end(), results.course->begin(), results.course->end());
  if (report.title.empty()) {
    report.analysis = name_of(state.view);
    report.title = fmt::format("{} of {}", title_of(state.view), results.name);
  }
  return report;
}

std::string csv_of(const Table& table) {
  std::string csv;
  for (size_t i = 0; i < table.columns.size(); ++i) csv += (i > 0 ? "," : "") + csv_field(table.columns[i].name);
  csv += '\n';
  for (const TableRow& row : table.rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) csv += (i > 0 ? "," : "") + csv_cell(row.cells[i]);
    csv += '\n';
  }
  return csv;
}

std::string csv_of(const Plot& plot) {
  std::string csv = fmt::format("series,{},{}\n", csv_field(plot.x.name), csv_field(plot.y.name));
  // What is not known of a step is no point of its course.
  const bool is_course = plot.kind == PlotKind::steps;
  for (const Series& series : plot.series)
    for (size_t i = 0; i < series.points(); ++i)
      csv += fmt::format("{},{},{}\n", csv_field(series.name), series.x[i],
                         std::isnan(series.y[i]) && !is_course ? "" : exact_text(series.y[i]));
  return csv;
}

std::string csv_of(const Report& report) {
  std::string csv;
  const auto add_block = [&](const std::string& title, const std::string& block) {
    csv += fmt::format("{}{}\n{}", csv.empty() ? "" : "\n", csv_field(title), block);
  };
  if (!report.facts.empty()) {
    std::string facts = "fact,value\n";
    for (const Quantity& fact : report.facts) facts += fmt::format("{},{}\n", csv_field(fact.name), csv_cell(fact.value));
    add_block(report.title, facts);
  }
  for (const Table& table : report.tables) add_block(table.title.empty() ? table.name : table.title, csv_of(table));
  for (const Plot& plot : report.plots)
    if (!plot.series.empty()) add_block(plot.title, csv_of(plot));
  return csv;
}

}  // namespace ulpscope::gui
