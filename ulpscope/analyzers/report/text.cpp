#include "ulpscope/analyzers/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/text_plot.h"

namespace ulpscope {

namespace {

struct Style {
  bool on;
  std::string operator()(std::string_view code, std::string_view text) const {
    return on ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  }
};

// Names in a trace may hold any bytes: none of them moves the cursor or ends a table's row.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

std::string words(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

// Up to `digits` significant digits, without an exponent where that is readable.
std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value == std::floor(value) && std::fabs(value) < 1e9) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}g}", value, digits);
}

std::string share_text(double share) {
  const double percent = 100 * share;
  if (percent > 0 && percent < 0.01) return "<0.01%";     // never 0 for something
  if (percent < 100 && percent > 99.99) return ">99.9%";  // nor all for almost all
  return fmt::format("{}%", number_text(percent, 3));
}

std::string bytes_text(double bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int power = 0;
  while (bytes >= 1024 && power < 4) {
    bytes /= 1024;
    ++power;
  }
  return fmt::format("{} {}", number_text(bytes, power == 0 ? 4 : 3), kNames[power]);
}

std::string unit_text(double value, Unit unit) {
  if (!std::isfinite(value)) return number_text(value, 4);
  switch (unit) {
    case Unit::share:
      return share_text(value);
    case Unit::bits:
      return fmt::format("{:.1f}", value);
    case Unit::exponent:
      return fmt::format("2^{}", number_text(value, 4));
    case Unit::bytes:
      return bytes_text(value);
    case Unit::seconds:
      return value == 0     ? "0 s"
             : value < 1e-3 ? fmt::format("{} us", number_text(value * 1e6, 3))
             : value < 1    ? fmt::format("{} ms", number_text(value * 1e3, 3))
                            : fmt::format("{} s", number_text(value, 4));
    case Unit::ratio:
      return fmt::format("{}x", number_text(value, 3));
    case Unit::scale: {
      int exponent = 0;
      const bool power = std::frexp(value, &exponent) == 0.5;
      if (power && (exponent > 10 || exponent < 1)) return fmt::format("2^{}", exponent - 1);
      break;
    }
    case Unit::none:
    case Unit::count:
      break;
  }
  return number_text(value, 5);
}

struct CellText {
  Unit unit;
  std::string operator()(Unknown) const { return "?"; }
  std::string operator()(NotApplicable) const { return "-"; }
  std::string operator()(bool value) const { return value ? "yes" : "no"; }
  std::string operator()(int64_t value) const {
    return unit == Unit::none || unit == Unit::count ? fmt::format("{}", value) : unit_text(static_cast<double>(value), unit);
  }
  std::string operator()(double value) const { return unit_text(value, unit); }
  std::string operator()(const Interval& value) const {
    if (value.upper == INFINITY) return fmt::format("at least {}", unit_text(value.lower, unit));
    if (value.lower == -INFINITY || (unit == Unit::scale && value.lower == 0))
      return fmt::format("at most {}", unit_text(value.upper, unit));
    std::string lower = unit_text(value.lower, unit);
    const std::string upper = unit_text(value.upper, unit);
    if (unit == Unit::share && lower != upper) return lower.substr(0, lower.size() - 1) + ".." + upper;
    return lower == upper ? lower : fmt::format("{} to {}", lower, upper);
  }
  std::string operator()(const std::string& value) const { return value.empty() ? "-" : one_line(value); }
};

// Words of `text` in lines of at most `width` columns, all but the first indented by `indent`.
std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string result;
  size_t column = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const size_t length = text_width(word);
    if (column > indent && column + 1 + length > width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += " ";
      ++column;
    }
    result += word;
    column += length;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string facts_text(const Report& report) {
  size_t name_width = 0;
  for (const Quantity& fact : report.facts) name_width = std::max(name_width, fact.name.size());
  std::string text;
  for (const Quantity& fact : report.facts) {
    text += fmt::format("  {:<{}}  {}\n", words(fact.name), name_width, cell_text(fact.value, fact.unit));
  }
  return text;
}

std::string evidence_text(const Evidence& evidence) {
  std::string text = key_text(evidence.key);
  const char* separator = text.empty() ? "" : ": ";
  for (const Quantity& quantity : evidence.values) {
    text += fmt::format("{}{} {}", separator, words(quantity.name), cell_text(quantity.value, quantity.unit));
    separator = ", ";
  }
  return text;
}

std::string finding_text(const Finding& finding, const TextOptions& options, const Style& style) {
  static constexpr const char* kColors[] = {"36", "33", "1;31"};
  constexpr size_t kIndent = 10;
  std::string text = style(kColors[static_cast<size_t>(finding.severity)], fmt::format("{:<8}", name_of(finding.severity)));
  text += "  " + wrapped(one_line(finding.title), options.width, kIndent) + "  " + style("2", finding.code) + "\n";
  for (const Evidence& evidence : finding.evidence) {
    text += std::string(kIndent, ' ') + wrapped(evidence_text(evidence), options.width, kIndent + 2) + "\n";
  }
  if (!finding.suggestion.empty()) {
    text += std::string(kIndent, ' ') + (options.unicode ? "→ " : "> ") + wrapped(finding.suggestion, options.width, kIndent + 2) +
            "\n";
  }
  return text;
}

// The first of two lines of a column's name, or "": names of several words stand in two lines, so that columns stay narrow.
std::pair<std::string, std::string> header_lines(std::string_view name) {
  const std::string text = words(name);
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return {"", text};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

// Text columns give way, the widest first, until the table fits or none is wider than 12. The first column, which names the row,
// gives way last.
void shrink(std::vector<size_t>& widths, const std::vector<Column>& columns, size_t width) {
  size_t total = 2 * widths.size();
  for (const size_t column : widths) total += column;
  for (const size_t first : {size_t{1}, size_t{0}}) {
    while (total > width) {
      size_t widest = columns.size();
      for (size_t i = first; i < columns.size(); ++i) {
        if (columns[i].kind == ColumnKind::text && widths[i] > 12 && (widest == columns.size() || widths[i] > widths[widest])) {
          widest = i;
        }
      }
      if (widest == columns.size()) break;
      --widths[widest];
      --total;
    }
  }
}

std::string table_text(const Table& table, const TextOptions& options, const Style& style) {
  std::vector<std::vector<std::string>> lines(2);
  std::vector<size_t> widths;
  for (const Column& column : table.columns) {
    const auto [above, below] = header_lines(column.name);
    lines[0].push_back(above);
    lines[1].push_back(below);
    widths.push_back(std::max(text_width(above), text_width(below)));
  }
  for (const TableRow& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const Unit unit = table.columns[i].unit;
      line.push_back(cell_text(row.cells[i], unit == Unit::none && table.columns[i].kind == ColumnKind::number ? row.unit : unit));
      widths[i] = std::max(widths[i], text_width(line.back()));
    }
  }
  shrink(widths, table.columns, options.width);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    for (size_t j = 0; j < lines[i].size(); ++j) {
      line += "  " + fit_text(lines[i][j], widths[j], table.columns[j].kind == ColumnKind::number, options.unicode);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (i == 0 && line.empty()) continue;  // no name of two words
    text += (i < 2 ? style("2", line) : line) + "\n";
  }
  if (table.rows.empty()) text += "  (none)\n";
  if (table.rows_left_out > 0) text += fmt::format("  and {} more (--limit 0 shows all)\n", table.rows_left_out);
  if (!table.note.empty()) text += "  " + style("2", wrapped(table.note, options.width, 2)) + "\n";
  return text;
}

}  // namespace

std::string cell_text(const Cell& cell, Unit unit) { return std::visit(CellText{unit}, cell); }

std::string key_text(const RowKey& key) {
  std::string text = key.module;
  const auto add = [&](const std::string& part, const char* separator = " ") {
    if (!text.empty()) text += separator;
    text += part;
  };
  if (!key.op_name.empty()) add(key.op_name);
  if (key.slot && *key.slot > 0) add(fmt::format("output {}", *key.slot));
  if (!key.parameter.empty()) add(fmt::format("({})", key.parameter));
  if (key.element) add(fmt::format("element {}", *key.element));
  if (key.step) add(fmt::format("step {}", *key.step), ", ");
  if (key.rank && *key.rank > 0) add(fmt::format("rank {}", *key.rank), ", ");
  return one_line(text);
}

std::string render_text(const Report& report, const TextOptions& options) {
  const Style style{options.color};
  std::string text = style("1", report.title) + "\n";
  for (const ReportSource& source : report.sources) {
    text += fmt::format("  {}{}\n", cell_text(source.path, Unit::none),
                        source.run.empty() ? std::string() : fmt::format(" (run {})", source.run.substr(0, 8)));
  }
  if (!report.complete) text += style("33", "  Stopped early: not all rows were read.") + "\n";
  if (!report.facts.empty()) text += '\n' + facts_text(report);
  if (!report.findings.empty()) text += "\n";
  for (const Finding& finding : report.findings) text += finding_text(finding, options, style);
  for (const Table& table : report.tables) text += '\n' + style("1", table.title) + "\n" + table_text(table, options, style);
  for (const Plot& plot : report.plots) text += '\n' + style("1", plot.title) + "\n" + plot_text(plot, options);
  return text;
}

}  // namespace ulpscope
