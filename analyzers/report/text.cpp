#include "ulpscope/analyzers/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/analyzers/report/text_plot.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

struct Style {
  bool on;
  std::string operator()(std::string_view code, std::string_view text) const {
    return on ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  }
};

void make_one_line(std::string& text) { text = one_line(text); }

void make_one_line(Cell& cell) {
  if (std::string* text = std::get_if<std::string>(&cell)) make_one_line(*text);
  if (LongText* text = std::get_if<LongText>(&cell)) make_one_line(text->brief);
}

void make_one_line(RowKey& key) {
  for (std::string* text : {&key.run, &key.op_name, &key.module, &key.role, &key.parameter, &key.name}) make_one_line(*text);
}

// Names in a trace may hold any bytes: none of them moves the cursor or ends a table's row. Every text of a report passes here.
Report printable(Report report) {
  make_one_line(report.title);
  report.verdict_text.make_printable();
  for (ReportSource& source : report.sources) {
    make_one_line(source.path);
    make_one_line(source.run);
  }
  for (Quantity& fact : report.facts) make_one_line(fact.value);
  for (Finding& finding : report.findings) {
    finding.title.make_printable();
    finding.suggestion.make_printable();
    for (Evidence& evidence : finding.evidence) {
      make_one_line(evidence.key);
      for (Quantity& quantity : evidence.values) make_one_line(quantity.value);
    }
  }
  for (Table& table : report.tables) {
    make_one_line(table.title);
    make_one_line(table.note);
    for (TableRow& row : table.rows) {
      for (Cell& cell : row.cells) make_one_line(cell);
    }
  }
  for (Plot& plot : report.plots) {
    make_one_line(plot.title);
    for (Series& series : plot.series) make_one_line(series.name);
    for (Mark& mark : plot.marks) make_one_line(mark.text);
    for (PlotNode& node : plot.nodes) {
      make_one_line(node.name);
      make_one_line(node.detail);
    }
  }
  return report;
}

// Up to `digits` significant digits, without an exponent where that is readable.
std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return exact_text(value);
  if (value == std::floor(value) && std::fabs(value) < 1e9) return fmt::format("{:.0f}", value + 0.0);  // -0 is 0
  return fmt::format("{:.{}g}", value, digits);
}

std::string share_text(double share) {
  const double percent = 100 * share;
  if (percent > 0 && percent < 0.01) return "<0.01%";      // never 0 for something
  if (percent < 100 && percent >= 99.95) return ">99.9%";  // nor all for almost all
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
    case Unit::bits: {
      const std::string text = fmt::format("{:.1f}", value);
      return text == "-0.0" ? "0.0" : text;
    }
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
    case Unit::scale:
    case Unit::power_of_two: {
      int exponent = 0;
      const bool power = std::frexp(value, &exponent) == 0.5;
      if (power && value != 1) return fmt::format("2^{}", exponent - 1);
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
  std::string operator()(const std::string& value) const { return value.empty() ? "-" : value; }
  std::string operator()(const LongText& value) const { return (*this)(value.brief); }
};

std::string facts_text(const Report& report, const TextOptions& options) {
  size_t name_width = 0;
  for (const Quantity& fact : report.facts) name_width = std::max(name_width, fact.name.size());
  std::string text;
  for (const Quantity& fact : report.facts) {
    const std::string value = cell_text(fact.value, fact.unit);
    text += fmt::format("  {:<{}}  {}\n", shown_name(fact.name), name_width, wrap_text(value, options.width, name_width + 4));
  }
  return text;
}

std::string evidence_text(const Evidence& evidence) {
  std::string text = key_text(evidence.key);
  const char* separator = text.empty() ? "" : ": ";
  for (const Quantity& quantity : evidence.values) {
    text += fmt::format("{}{} {}", separator, shown_name(quantity.name), cell_text(quantity.value, quantity.unit));
    separator = ", ";
  }
  return text;
}

// How much of a report is shown, unless all is asked for.
struct Shown {
  size_t evidence = 3;  // of a finding
  size_t notes = 3;
  size_t causes = SIZE_MAX;
  bool others = true;  // warnings that have no part in the verdict
  size_t tables_left_out = 0, plots_left_out = 0;
};

std::string finding_text(const Finding& finding, const TextOptions& options, const Shown& most, const Style& style) {
  static constexpr const char* kColors[] = {"36", "33", "1;31"};
  constexpr size_t kIndent = 10;
  std::string text = style(kColors[static_cast<size_t>(finding.severity)], fmt::format("{:<8}", name_of(finding.severity)));
  const std::string title = wrap_text(finding.title.text(), options.width, kIndent);
  const size_t line_begin = title.rfind('\n') + 1;  // 0 where there is one line
  const size_t used = (line_begin == 0 ? kIndent : 0) + text_width(std::string_view(title).substr(line_begin));
  const bool fits = used + 2 + finding.code.size() <= static_cast<size_t>(options.width);
  text += "  " + title + (fits ? "  " : '\n' + std::string(kIndent, ' ')) + style("2", finding.code) + "\n";
  const bool is_note = finding.severity == Severity::info && !options.all;
  const size_t shown = options.all ? finding.evidence.size() : std::min(finding.evidence.size(), is_note ? 0 : most.evidence);
  for (const Evidence& evidence : std::span(finding.evidence).first(shown))
    text += std::string(kIndent, ' ') + wrap_text(evidence_text(evidence), options.width, kIndent + 2) + "\n";
  if (!finding.suggestion.empty()) {
    text += std::string(kIndent, ' ') + (options.unicode ? "→ " : "> ") +
            wrap_text(finding.suggestion.text(), options.width, kIndent + 2) + "\n";
  }
  return text;
}

std::string verdict_text(const Report& report, const TextOptions& options, const Style& style) {
  static constexpr const char* kColors[] = {"1;32", "1;36", "1;33", "1;31"};
  return style(kColors[static_cast<size_t>(*report.verdict)], wrap_text(verdict_line(report), options.width, 2)) + "\n";
}

// Causes first, each with how much came of it; then what has no part in the verdict.
std::string findings_text(const Report& report, const TextOptions& options, const Shown& shown, const Style& style) {
  std::string text;
  if (options.all || !report.verdict) {
    for (const Finding& finding : report.findings) text += finding_text(finding, options, shown, style);
    return text;
  }
  std::vector<bool> told(report.findings.size());
  std::string further;
  for (size_t at = 0; at < report.causes.size(); ++at) {
    const Cause& cause = report.causes[at];
    const bool is_shown = at < shown.causes;
    if (is_shown)
      text += finding_text(report.findings[cause.finding], options, shown, style);
    else
      further += (further.empty() ? ": " : ", ") + report.findings[cause.finding].code;
    told[cause.finding] = true;
    std::string codes;
    size_t count = 0, notes = 0;
    for (const size_t i : cause.consequences) {
      told[i] = true;
      if (report.findings[i].severity == Severity::info) {
        ++notes;
        continue;
      }
      ++count;
      codes += (codes.empty() ? ": " : ", ") + report.findings[i].code;
    }
    if (count + notes == 0 || !is_shown) continue;
    std::string all = count > 0 ? count_of(count, "finding") : "";
    if (notes > 0) all += (all.empty() ? "" : " and ") + count_of(notes, "note");
    text += fmt::format("          {}\n", wrap_text(fmt::format("{} came of it (--all){}", all, codes), options.width, 12));
  }
  if (!further.empty())
    text +=
        fmt::format("          {}\n",
                    wrap_text(fmt::format("and {} (--all){}", count_of(report.causes.size() - shown.causes, "more cause"), further),
                              options.width, 12));
  // A run in which nothing was found has nothing to explain.
  const bool asks_how_it_went = report.analysis == "report" || report.analysis == "train";
  const size_t most = report.verdict && *report.verdict < Verdict::loses_accuracy && asks_how_it_went ? 0 : shown.notes;
  size_t notes = 0, others = 0;
  for (size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (told[i]) continue;
    const bool is_note = finding.severity == Severity::info;
    if (is_note ? ++notes > most : !shown.others) {
      others += !is_note;
      continue;
    }
    text += finding_text(finding, options, shown, style);
  }
  if (others > 0) text += fmt::format("warning   {} (--all shows them)\n", count_of(others, "more finding"));
  if (notes > most)
    text += fmt::format("{:<8}  {}{} (--all shows them)\n", "info", most > 0 ? "and " : "",
                        count_of(notes - most, most > 0 ? "more note" : "note"));
  return text;
}

// The first of two lines of a column's name, or "": names of several words stand in two lines, so that columns stay narrow.
std::pair<std::string, std::string> header_lines(std::string_view name) {
  const std::string text = shown_name(name);
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return {"", text};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

// A table's cells as text, column by column: two lines of its name, then the rows.
struct TextColumn {
  std::vector<std::string> lines;
  size_t width = 0;
  bool is_text = false;  // and may be shortened

  void measure() {
    width = 0;
    for (const std::string& line : lines) width = std::max(width, text_width(line));
  }
  void shorten(size_t to, bool unicode) {
    if (width <= to) return;
    const std::vector<std::string> cells = shorten_texts({lines.begin() + 2, lines.end()}, to, unicode);
    std::copy(cells.begin(), cells.end(), lines.begin() + 2);
    measure();
  }
};

std::vector<TextColumn> text_columns(const Table& table) {
  std::vector<TextColumn> columns;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    TextColumn& text = columns.emplace_back();
    text.is_text = column.kind != ColumnKind::number;
    const auto [above, below] = header_lines(column.name);
    text.lines = {above, below};
    for (const TableRow& row : table.rows) {
      text.lines.push_back(cell_text(row.cells[i], cell_unit(column, row)));
    }
    text.measure();
  }
  return columns;
}

// The first column of each part of a table, behind the first column of all, which has `name_width` columns and stands in every
// part.
std::vector<size_t> divide(const std::vector<TextColumn>& columns, size_t name_width, size_t width) {
  std::vector<size_t> parts{1};
  size_t used = 2 + name_width;
  for (size_t i = 1; i < columns.size(); ++i) {
    if (used + 2 + columns[i].width > width && i > parts.back()) {
      parts.push_back(i);
      used = 2 + name_width;
    }
    used += 2 + columns[i].width;
  }
  return parts;
}

// Shortens texts so that the table fits, those of the first column, which names the rows, last. Where that is not enough, the table
// is divided into as few parts as possible. Returns what divide does.
std::vector<size_t> fit_columns(std::vector<TextColumn>& columns, const TextOptions& options) {
  constexpr size_t kLeastText = 12, kLeastName = 24;
  const auto width = static_cast<size_t>(options.width);
  size_t total = 0;
  for (const TextColumn& column : columns) total += 2 + column.width;
  if (!options.fit_width || total <= width) return {1};
  for (size_t i = 1; i < columns.size(); ++i) {
    TextColumn& column = columns[i];
    if (!column.is_text || column.width <= kLeastText) continue;
    total -= column.width;
    column.shorten(std::max(kLeastText, width > total ? width - total : 0), options.unicode);
    total += column.width;
  }
  TextColumn& name = columns[0];
  if (name.is_text) {
    size_t best = std::min(name.width, width / 2);
    for (size_t shorter = best; shorter-- > kLeastName;) {
      if (divide(columns, shorter, width).size() < divide(columns, best, width).size()) best = shorter;
    }
    if (divide(columns, best, width).size() == 1) best = width - (total - name.width);
    name.shorten(best, options.unicode);
  }
  return divide(columns, name.width, width);
}

std::string left_out_text(uint64_t left_out) {
  return left_out > 0 ? fmt::format("  and {} more (--limit 0 shows all)\n", left_out) : std::string();
}

std::string table_text(const Table& table, const TextOptions& options, const Style& style) {
  std::vector<TextColumn> columns = text_columns(table);
  const std::vector<size_t> parts = fit_columns(columns, options);
  std::string text;
  for (size_t part = 0; part < parts.size(); ++part) {
    const size_t end = part + 1 < parts.size() ? parts[part + 1] : columns.size();
    for (size_t i = 0; i < table.rows.size() + 2; ++i) {
      std::string line;
      const auto add = [&](const TextColumn& column) { line += "  " + pad_text(column.lines[i], column.width, !column.is_text); };
      add(columns[0]);
      for (size_t j = parts[part]; j < end; ++j) add(columns[j]);
      line.erase(line.find_last_not_of(' ') + 1);
      if (i == 0 && line.empty()) continue;  // no name of two words
      text += (i < 2 ? style("2", line) : line) + "\n";
    }
  }
  if (table.rows.empty()) text += "  (none)\n";
  text += left_out_text(table.rows_left_out);
  if (!table.note.empty()) text += "  " + style("2", wrap_text(table.note, options.width, 2)) + "\n";
  return text;
}

std::string text_above_tables(const Report& report, const TextOptions& options, const Shown& shown, const Style& style) {
  std::string text;
  if (report.verdict) text += verdict_text(report, options, style);
  text += style("1", report.title) + "\n";
  for (const ReportSource& source : report.sources) {
    text += fmt::format("  {}{}\n", ulpscope::cell_text(source.path, Unit::none),
                        source.run.empty() ? std::string() : fmt::format(" (run {})", source.run.substr(0, 8)));
  }
  if (!report.complete) text += style("33", "  Stopped early: not all rows were read.") + "\n";
  if (!report.facts.empty()) text += '\n' + facts_text(report, options);
  if (!report.findings.empty()) text += "\n";
  text += findings_text(report, options, shown, style);
  return text;
}

std::string tables_text(const Report& report, const TextOptions& options, const Shown& shown, const Style& style) {
  std::string text;
  for (const Table& table : report.tables) text += '\n' + style("1", table.title) + "\n" + table_text(table, options, style);
  for (const Plot& plot : report.plots)
    if (!plot.only_pictured)
      text += '\n' + style("1", plot.title) + "\n" + plot_text(plot, options) + left_out_text(plot.series_left_out);
  std::string left_out;
  for (const auto& [count, what] : {std::pair(shown.tables_left_out, "table"), std::pair(shown.plots_left_out, "picture")})
    if (count > 0) left_out += (left_out.empty() ? "" : " and ") + count_of(count, what);
  if (!left_out.empty()) text += fmt::format("\nand {} (--limit 0 shows all)\n", left_out);
  return text;
}

size_t lines_of(std::string_view text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

// A line each, of which some can be left out: rows of exponents cannot.
size_t lines_that_can_go(const Plot& plot) {
  const bool has_lines = plot.kind == PlotKind::histogram || (plot.kind == PlotKind::heatmap && !plot.has_exponent_rows());
  return has_lines && !plot.only_pictured ? plot.series.size() : 0;
}

bool is_text(const Plot& plot) { return !plot.only_pictured; }

// Leaves out the last rows of the longest table, or the last series of the histogram or heatmap that has most. False where few are
// left.
bool shorten(Report& report) {
  constexpr size_t kLeastRows = 5, kLeastSeries = 2;
  const auto table = std::max_element(report.tables.begin(), report.tables.end(),
                                      [](const Table& a, const Table& b) { return a.rows.size() < b.rows.size(); });
  if (table != report.tables.end() && table->rows.size() > kLeastRows) {
    // The first one makes room for the line that says so.
    const size_t left_out = std::min<size_t>(table->rows_left_out == 0 ? 2 : 1, table->rows.size() - kLeastRows);
    table->rows.resize(table->rows.size() - left_out);
    table->rows_left_out += left_out;
    return true;
  }
  const auto plot = std::max_element(report.plots.begin(), report.plots.end(),
                                     [](const Plot& a, const Plot& b) { return lines_that_can_go(a) < lines_that_can_go(b); });
  if (plot == report.plots.end() || lines_that_can_go(*plot) <= kLeastSeries) return false;
  const size_t left_out = std::min<size_t>(plot->series_left_out == 0 ? 2 : 1, plot->series.size() - kLeastSeries);
  plot->series.resize(plot->series.size() - left_out);
  plot->series_left_out += left_out;
  return true;
}

// Of findings, and then of what stands below them, what matters least of what is left. False where nothing can go.
bool leave_out(Report& report, Shown& shown) {
  if (shown.evidence > 1) {
    shown.evidence = 1;
  } else if (shown.notes > 0) {
    --shown.notes;
  } else if (shown.evidence > 0) {
    shown.evidence = 0;
  } else if (std::min(shown.causes, report.causes.size()) > 1) {
    shown.causes = std::min(shown.causes, report.causes.size()) - 1;
  } else if (shown.others && report.verdict) {
    shown.others = false;
  } else if (const auto plot = std::find_if(report.plots.rbegin(), report.plots.rend(), is_text); plot != report.plots.rend()) {
    report.plots.erase(std::next(plot).base());
    ++shown.plots_left_out;
  } else if (!report.tables.empty()) {
    report.tables.pop_back();
    ++shown.tables_left_out;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string shown_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string exact_text(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? value > 0 ? "Infinity" : "-Infinity" : fmt::format("{}", value);
}

std::string cell_text(const Cell& cell, Unit unit) { return std::visit(CellText{unit}, cell); }

std::string key_text(const RowKey& key) {
  std::string text = key.name.empty() ? key.module : key.name;
  const auto add = [&](const std::string& part, const char* separator = " ") {
    if (!text.empty()) text += separator;
    text += part;
  };
  if (key.name.empty()) {
    if (!key.op_name.empty()) add(key.op_name);
    if (key.slot && *key.slot > 0) add(fmt::format("output {}", *key.slot));
    if (!key.parameter.empty()) add(fmt::format("({})", key.parameter));
  }
  if (key.element) add(fmt::format("element {}", *key.element));
  if (key.step) add(fmt::format("step {}", *key.step), ", ");
  if (key.micro_batch && *key.micro_batch > 0) add(fmt::format("micro-batch {}", *key.micro_batch), ", ");
  if (key.loss_index && *key.loss_index > 0) add(fmt::format("loss {}", *key.loss_index), ", ");
  if (key.rank && *key.rank > 0) add(fmt::format("rank {}", *key.rank), ", ");
  return text;
}

const char* verdict_word(Verdict verdict) {
  static constexpr const char* kWords[] = {"HEALTHY", "LOSS NOT KNOWN", "LOSES ACCURACY", "BROKEN"};
  return kWords[static_cast<size_t>(verdict)];
}

std::string verdict_line(const Report& report) {
  return fmt::format("{}: {}", verdict_word(*report.verdict), one_line(report.verdict_text.text()));
}

std::string render_text(const Report& given, const TextOptions& options) {
  Report report = printable(given);
  const Style style{options.color};
  Shown shown;
  std::string above = text_above_tables(report, options, shown, style), tables = tables_text(report, options, shown, style);
  const auto is_too_long = [&] { return options.most_lines > 0 && lines_of(above) + lines_of(tables) > options.most_lines; };
  while (is_too_long() && shorten(report)) tables = tables_text(report, options, shown, style);
  while (is_too_long() && leave_out(report, shown)) {
    above = text_above_tables(report, options, shown, style);
    tables = tables_text(report, options, shown, style);
  }
  return above + tables;
}

}  // namespace ulpscope
