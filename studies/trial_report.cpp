#include "ulpscope/studies/trial_report.h"

#include <fmt/format.h>

namespace ulpscope {

namespace {

Cell number_or_none(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

}  // namespace

void add_not_tried(std::string_view why, Report& report) {
  report.add_fact("run_again", fmt::format("{}; nothing was tried", why));
}

void add_reference(const Reference& reference, Report& report) {
  if (!reference.exists()) {
    report.add_fact("reference", "none: " + reference.lack);
    return;
  }
  report.add_fact("reference", reference.name);
  report.add_fact("reference_loss", fmt::format("{:.4g} to {:.4g}", reference.start, reference.end));
  report.add_fact("counts_as_training", fmt::format("a loss up to {:.4g}", reference.bound));
}

void add_tried(uint64_t first_step, uint64_t steps, const std::vector<Column>& measured, std::string_view note,
               std::vector<TriedChange> tried, Report& report) {
  Table table{
      "fixes",
      fmt::format("What was tried, from step {} on and for {} steps", first_step, steps),
      {{"change", ColumnKind::text}, {"result", ColumnKind::text}},
      {},
      0,
      fmt::format("The cheapest for training first. {}{}End loss: the median of the last ten.", note, note.empty() ? "" : " ")};
  table.columns.insert(table.columns.end(), measured.begin(), measured.end());
  table.columns.push_back({"end_loss"});
  table.columns.push_back({"detail", ColumnKind::text});
  for (TriedChange& change : tried) {
    TableRow& row = table.rows.emplace_back();
    row.cells.push_back(std::move(change.text));
    row.cells.push_back(text_or_none(std::move(change.result)));
    for (const std::optional<double>& measure : change.measures) row.cells.push_back(number_or_none(measure));
    row.cells.push_back(number_or_none(change.end_loss));
    row.cells.push_back(std::move(change.detail));
  }
  report.tables.insert(report.tables.begin(), std::move(table));
}

}  // namespace ulpscope
