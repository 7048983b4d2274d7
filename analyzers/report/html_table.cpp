#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr size_t kMostRowsOfTables = 6000;

// The number by which a cell is sorted: of an interval its nearer bound.
std::optional<double> number_in(const Cell& cell) {
  if (const int64_t* integer = std::get_if<int64_t>(&cell)) return static_cast<double>(*integer);
  if (const double* number = std::get_if<double>(&cell)) return *number;
  if (const Interval* interval = std::get_if<Interval>(&cell))
    return std::isfinite(interval->lower) ? interval->lower : interval->upper;
  return std::nullopt;
}

// What the text of a cell does not say by itself: that its number is one of these.
std::string_view unit_note(Unit unit) { return unit == Unit::bits ? "bits" : ""; }

std::string cell_html(const Column& column, const TableRow& row, const Cell& cell, bool names_row) {
  std::string inside;
  if (const LongText* text = std::get_if<LongText>(&cell); text && text->text != text->brief) {
    inside = fmt::format("<details><summary>{}</summary>{}</details>", html_text(text->brief),
                         html_text(text->text, kMostSentenceBytes));
  } else {
    inside = html_text(cell_text(cell, cell_unit(column, row)));
  }
  std::string attributes = column.kind == ColumnKind::number ? " class=\"n\"" : "";
  if (const auto number = number_in(cell)) {
    // As the script reads it.
    if (const std::string text = exact_text(*number); text != inside) attributes += fmt::format(" data-v=\"{}\"", text);
  }
  return names_row ? fmt::format("<th scope=\"row\"{}>{}</th>", attributes, inside)
                   : fmt::format("<td{}>{}</td>", attributes, inside);
}

// The column of loss scales that a slider chooses from: one that has several, of which some row has one and another row of the
// same name another; -1: none.
int scale_column(const Table& table) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    if (column.name != "scale" || (column.unit != Unit::scale && column.unit != Unit::power_of_two)) continue;
    std::set<double> scales;
    std::map<std::string, double> by_name;
    bool is_asked_at_several = false;
    for (const TableRow& row : table.rows) {
      const auto scale = number_in(row.cells[i]);
      if (!scale) continue;
      scales.insert(*scale);
      const auto [first, is_new] = by_name.try_emplace(cell_text(row.cells[0], cell_unit(table.columns[0], row)), *scale);
      is_asked_at_several = is_asked_at_several || first->second != *scale;
    }
    if (scales.size() > 2 && is_asked_at_several) return static_cast<int>(i);
  }
  return -1;
}

std::string header_html(const Table& table) {
  std::string html = "<thead><tr>";
  for (const Column& column : table.columns) {
    html += fmt::format("<th scope=\"col\"{} data-unit=\"{}\">{}", column.kind == ColumnKind::number ? " class=\"n\"" : "",
                        name_of(column.unit), html_text(shown_name(column.name)));
    if (const std::string_view note = unit_note(column.unit); !note.empty()) html += fmt::format(" <small>{}</small>", note);
    html += "</th>";
  }
  return html + "</tr></thead>\n";
}

}  // namespace

std::string table_html(const Table& table, size_t number, HtmlRoom& room) {
  const int scale = scale_column(table);
  std::string html = fmt::format("<section class=\"card table\" id=\"table-{}\"{}>\n<h3 id=\"table-{}-title\">{}</h3>\n", number,
                                 scale < 0 ? "" : fmt::format(" data-scale-column=\"{}\"", scale), number,
                                 html_text(table.title, kMostSentenceBytes));
  const std::string header = header_html(table);
  if (!room.take(html.size() + header.size() + kMostSentenceBytes)) return html_left_out(1, "table");
  uint64_t left_out = table.rows_left_out;
  if (table.rows.empty()) {
    html += "<p class=\"soft\">none</p>\n";
  } else {
    html += fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"table-{}-title\">\n<table>\n{}<tbody>\n", number,
        header);
    for (size_t i = 0; i < table.rows.size(); ++i) {
      const TableRow& row = table.rows[i];
      std::string line = "<tr>";
      for (size_t j = 0; j < row.cells.size() && j < table.columns.size(); ++j)
        line += cell_html(table.columns[j], row, row.cells[j], j == 0);
      line += "</tr>\n";
      if (i >= kMostRowsOfTables || !room.take(line.size())) {
        left_out += table.rows.size() - i;
        break;
      }
      html += line;
    }
    html += "</tbody>\n</table>\n</div>\n";
  }
  html += html_left_out(left_out, "row");
  if (!table.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", html_sentence(table.note));
  return html + "</section>\n";
}

}  // namespace ulpscope
