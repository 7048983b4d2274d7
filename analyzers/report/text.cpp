#include "ulpscope/analyzers/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

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
  for (std::string* text : {&key.run, &key.op_name, &key.module, &key.role, &key.parameter, &key.name, &key.location})
    make_one_line(*text);
}

// Names in a trace may hold any bytes: none of them moves the cursor or ends a table's row. Every text of a report passes here.
Report printable(Report report) {
  make_one_line(report.title);
  report.verdict_text.make_printable();
  report.checked.make_printable();
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
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < 1e9) return grouped_digits(fmt::format("{:.0f}", value + 0.0));  // -0 is 0
  return grouped_digits(fmt::format("{:.{}g}", value, digits));
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
  return number_text(value, 4);
}

struct CellText {
  Unit unit;
  std::string operator()(Unknown) const { return "?"; }
  std::string operator()(NotApplicable) const { return "-"; }
  std::string operator()(bool value) const { return value ? "yes" : "no"; }
  std::string operator()(int64_t value) const {
    if (unit == Unit::count) return grouped_digits(fmt::format("{}", value));
    return unit == Unit::none ? fmt::format("{}", value) : unit_text(static_cast<double>(value), unit);
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

// "20 steps", "1 step", "loss scale 2^5".
std::string quantity_text(const Quantity& quantity) {
  const std::string value = cell_text(quantity.value, quantity.unit);
  std::string name = shown_name(quantity.name);
  if (quantity.unit != Unit::count) return fmt::format("{} {}", name, value);
  if (value == "1" && name.ends_with('s')) name.resize(name.size() - (name.ends_with("ches") ? 2 : 1));
  return fmt::format("{} {}", value, name);
}

// The format that a run is in, and how long it took, need no name.
std::string brief_fact(const Quantity& fact) {
  if (fact.name == "precision") return upper_case(cell_text(fact.value, fact.unit));
  return fact.name == "seconds" ? cell_text(fact.value, fact.unit) : quantity_text(fact);
}

// A loss scale of 1, as runs have that scale no loss.
bool scales_nothing(const Quantity& fact) {
  const auto* const scale = std::get_if<double>(&fact.value);
  return fact.unit == Unit::scale && scale != nullptr && *scale == 1;
}

bool is_unknown(const Quantity& fact) {
  const auto* const text = std::get_if<std::string>(&fact.value);
  return std::holds_alternative<Unknown>(fact.value) || (text != nullptr && text->empty());
}

// One below the other.
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
    if (is_no_count(quantity)) continue;
    text += separator + quantity_text(quantity);
    separator = ", ";
  }
  return text;
}

// How much of a report is shown, unless all is asked for.
struct Shown {
  size_t evidence = 3;            // of a finding
  size_t whole = SIZE_MAX;        // how many causes have what, where and advice below their first sentence
  size_t thens = SIZE_MAX;        // how many have what followed from them
  size_t fixes = SIZE_MAX;        // how many have their advice
  size_t short_fixes = SIZE_MAX;  // how many have its first sentence, where they have not all of it
  size_t causes = SIZE_MAX;
  bool others = true;    // findings that have no part in the verdict
  bool snippets = true;  // code below the advice
  size_t tables_left_out = 0, plots_left_out = 0;
};

// What has stood in the report: no sentence stands there twice.
class Said {
 public:
  Sentences left_of(const Sentences& sentences) {
    Sentences left;
    for (const Sentence& each : sentences)
      if (texts_.insert(each.text()).second) left += each;
    return left;
  }

 private:
  std::unordered_set<std::string> texts_;
};

constexpr size_t kLabelWidth = 9, kCodeIndent = 4;

// "Cause    words", in lines of which all but the first are indented.
std::string labelled(std::string_view label, std::string_view words, const TextOptions& options) {
  return fmt::format("{:<{}}{}\n", label, kLabelWidth, wrap_text(words, options.width, kLabelWidth));
}
std::string labelled_part(std::string_view label, std::string_view words, const TextOptions& options) {
  return labelled(fmt::format("  {}", label), words, options);
}

class FindingText {
 public:
  FindingText(const TextOptions& options, const Shown& most, const Style& style) : options_(options), most_(most), style_(style) {}

  std::string verdict(const Report& report) {
    static constexpr const char* kColors[] = {"1;32", "1;33", "1;31"};
    const std::string words = fmt::format("{}: {}", verdict_word(*report.verdict), said_.left_of(report.verdict_text).text());
    return style_(kColors[static_cast<size_t>(*report.verdict)], wrap_text(words, options_.width, 2)) + "\n";
  }

  // How much of a finding is told below its first sentence and its code.
  enum class Told : uint8_t { title, short_fix, fix, whole };
  std::string finding(const Finding& finding, std::string_view label, Told told) {
    static constexpr const char* kColors[] = {"36", "33", "1;31"};
    const std::string_view color = kColors[static_cast<size_t>(finding.severity)];
    const bool opens = !finding.title.empty() && !(said_.left_of(finding.title.front())).empty();
    std::string text = with_code(label, opens ? finding.title.front().text() : "", finding.code);
    text = style_(color, text.substr(0, kLabelWidth)) + text.substr(kLabelWidth);
    if (told == Told::title) return text;
    if (told == Told::whole) {
      if (const Sentences rest = said_.left_of(finding.title.from(1)); !rest.empty())
        text += labelled_part("what", rest.text(), options_);
      const size_t shown = options_.all ? finding.evidence.size() : std::min(finding.evidence.size(), most_.evidence);
      for (size_t i = 0; i < shown; ++i) text += labelled_part(i == 0 ? "where" : "", evidence_text(finding.evidence[i]), options_);
    }
    const Sentences help = said_.left_of(finding.suggestion);
    // One that lets a problem be is as good as one that mends it.
    if (!help.empty())
      text += labelled_part(finding.severity == Severity::info ? "" : "fix",
                            told == Told::short_fix ? help.front().text() : help.text(), options_);
    if (told == Told::whole && most_.snippets) text += snippets_text(finding);
    return text;
  }

 private:
  // As it is pasted: no line is broken.
  static std::string snippets_text(const Finding& finding) {
    std::string text;
    for (const Snippet& snippet : finding.snippets) {
      if (text.find('\n') != std::string::npos) text += '\n';
      for (const std::string& line : printable_lines(snippet.code))
        text += line.empty() ? "\n" : fmt::format("{:{}}{}\n", "", kCodeIndent, line);
    }
    return text;
  }

  // The code stands behind the words, or below them where it does not fit.
  std::string with_code(std::string_view label, const std::string& words, const std::string& code) const {
    std::string text = labelled(label, words.empty() ? code : words, options_);
    if (words.empty()) return text;
    text.pop_back();
    const size_t line_begin = text.rfind('\n') + 1;
    const size_t used = text_width(std::string_view(text).substr(line_begin));
    const bool fits = used + 2 + code.size() <= static_cast<size_t>(options_.width);
    return text + (fits ? "  " : '\n' + std::string(kLabelWidth, ' ')) + style_("2", code) + "\n";
  }

  const TextOptions& options_;
  const Shown& most_;
  const Style& style_;
  Said said_;
};

// "run.loss_nonfinite, 2 range.values_overflow and 2 notes (--all)".
std::string consequences_text(const Report& report, const Cause& cause) {
  std::vector<std::pair<std::string, size_t>> codes;
  size_t notes = 0;
  for (const size_t i : cause.consequences) {
    const Finding& finding = report.findings[i];
    if (finding.severity == Severity::info) {
      ++notes;
      continue;
    }
    const auto is_it = [&](const auto& code) { return code.first == finding.code; };
    if (const auto told = std::find_if(codes.begin(), codes.end(), is_it); told != codes.end())
      ++told->second;
    else
      codes.emplace_back(finding.code, 1);
  }
  std::vector<std::string> words;
  for (const auto& [code, count] : codes) words.push_back(count == 1 ? code : fmt::format("{} {}", count, code));
  if (notes > 0) words.push_back(count_of(notes, "note"));
  return words.empty() ? "" : join_words(words) + " (--all)";
}

// Causes first, each with how much followed from it; then what has no part in the verdict.
std::string findings_text(const Report& report, const TextOptions& options, const Shown& shown, FindingText& findings) {
  static constexpr const char* kLabels[] = {"Note", "Warning", "Error"};
  const auto label_of = [&](const Finding& finding) { return kLabels[static_cast<size_t>(finding.severity)]; };
  std::string text;
  std::vector<bool> told(report.findings.size());
  std::vector<std::string> further;
  for (size_t at = 0; at < report.causes.size(); ++at) {
    const Cause& cause = report.causes[at];
    told[cause.finding] = true;
    for (const size_t i : cause.consequences) told[i] = true;
    if (at >= shown.causes) {
      further.push_back(report.findings[cause.finding].code);
      continue;
    }
    const auto told_of_it = at < shown.whole         ? FindingText::Told::whole
                            : at < shown.fixes       ? FindingText::Told::fix
                            : at < shown.short_fixes ? FindingText::Told::short_fix
                                                     : FindingText::Told::title;
    text += findings.finding(report.findings[cause.finding], "Cause", told_of_it);
    if (options.all) {
      for (const size_t i : cause.consequences) text += findings.finding(report.findings[i], "  then", FindingText::Told::whole);
    } else if (const std::string then = consequences_text(report, cause); !then.empty() && at < shown.thens) {
      text += labelled_part("then", then, options);
    }
  }
  if (!further.empty())
    text += labelled("Causes", fmt::format("{} more (--all): {}", further.size(), fmt::join(further, ", ")), options);
  for (size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    const bool is_note = report.verdict && finding.severity == Severity::info;
    if (told[i] || (!options.all && (is_note || !shown.others))) continue;
    text += findings.finding(finding, label_of(finding), FindingText::Told::whole);
  }
  return text;
}

// Behind --all stand notes, and findings that neither are causes nor are named below one.
std::string folded_text(const Report& report, const Shown& shown) {
  enum class Place : uint8_t { alone, told, folded };
  std::vector<Place> places(report.findings.size());
  for (size_t at = 0; at < report.causes.size(); ++at) {
    const Cause& cause = report.causes[at];
    places[cause.finding] = Place::told;
    for (const size_t i : cause.consequences) places[i] = at < std::min(shown.causes, shown.thens) ? Place::told : Place::folded;
  }
  size_t notes = 0, others = 0;
  for (size_t i = 0; i < report.findings.size(); ++i) {
    if (places[i] == Place::told) continue;
    if (report.findings[i].severity == Severity::info)
      ++notes;
    else
      others += places[i] == Place::folded || !shown.others ? 1 : 0;
  }
  std::vector<std::string> words;
  if (others > 0) words.push_back(count_of(others, "more finding"));
  if (notes > 0) words.push_back(count_of(notes, "note"));
  const bool has_snippets =
      std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) { return !finding.snippets.empty(); });
  if (has_snippets && !shown.snippets) words.emplace_back("code to paste");
  return words.empty() ? "" : fmt::format("{}: --all.", join_words(words));
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

std::string sources_text(const Report& report) {
  std::string text;
  for (const ReportSource& source : report.sources) {
    text += fmt::format("  {}{}\n", ulpscope::cell_text(source.path, Unit::none),
                        source.run.empty() ? std::string() : fmt::format(" (run {})", source.run.substr(0, 8)));
  }
  return text;
}

// Of a run that was judged: its facts in one line, and what the verdict rests on.
std::string run_text(const Report& report, const TextOptions& options, const Shown& shown) {
  std::string text;
  if (!report.facts.empty()) {
    std::vector<std::string> facts;
    for (const Quantity& fact : report.facts)
      if (!is_no_count(fact) && !scales_nothing(fact) && !is_unknown(fact)) facts.push_back(brief_fact(fact));
    text += labelled("Run", fmt::format("{}", fmt::join(facts, ", ")), options);
  }
  std::vector<std::string> words;
  if (!report.checked.empty()) words.push_back(report.checked.text());
  if (const std::string folded = folded_text(report, shown); !folded.empty() && !options.all) words.push_back(folded);
  if (!words.empty()) text += labelled("Checked", fmt::format("{}", fmt::join(words, " ")), options);
  return text;
}

std::string text_above_tables(const Report& report, const TextOptions& options, const Shown& shown, const Style& style) {
  FindingText findings(options, shown, style);
  std::string text;
  if (report.verdict) text += findings.verdict(report);
  const std::string stopped = report.complete ? "" : style("33", "  Stopped early: not all rows were read.") + "\n";
  // What is asked of a run as a whole is the verdict, which stands alone.
  if (report.verdict && report.facts_in_brief) {
    text += stopped + findings_text(report, options, shown, findings) + run_text(report, options, shown);
    return text;
  }
  text += style("1", report.title) + "\n" + sources_text(report) + stopped;
  if (!report.facts.empty()) text += '\n' + facts_text(report, options);
  if (!report.findings.empty()) text += "\n";
  text += findings_text(report, options, shown, findings);
  const std::string folded = options.all || !report.verdict ? "" : folded_text(report, shown);
  if (!folded.empty()) text += labelled("Notes", folded, options);
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
  const auto of_causes = [&](size_t most) { return std::min(most, report.causes.size()); };
  const size_t whole = of_causes(shown.whole), thens = of_causes(shown.thens), fixes = of_causes(shown.fixes),
               short_fixes = of_causes(shown.short_fixes), causes = of_causes(shown.causes);
  if (whole > 1) {
    shown.whole = whole - 1;
  } else if (shown.evidence > 1) {
    --shown.evidence;
  } else if (shown.others && report.verdict) {
    shown.others = false;
  } else if (thens > 1) {
    shown.thens = thens - 1;
  } else if (fixes > 1) {
    shown.fixes = fixes - 1;
  } else if (short_fixes > 1) {
    shown.short_fixes = short_fixes - 1;
  } else if (causes > 1) {
    shown.causes = causes - 1;
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

bool is_no_count(const Quantity& quantity) {
  const auto* const count = std::get_if<int64_t>(&quantity.value);
  return quantity.unit == Unit::count && count != nullptr && *count == 0;
}

std::string shown_name(std::string_view name) {
  if (name == "nan") return "NaN";
  if (name == "infinity" || name == "infinities") return "Inf";
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
  if (!key.location.empty()) add("at " + key.location);
  if (key.element) add(fmt::format("element {}", *key.element));
  if (key.step) add(fmt::format("step {}", *key.step), ", ");
  if (key.micro_batch && *key.micro_batch > 0) add(fmt::format("micro-batch {}", *key.micro_batch), ", ");
  if (key.loss_index && *key.loss_index > 0) add(fmt::format("loss {}", *key.loss_index), ", ");
  if (key.rank && *key.rank > 0) add(fmt::format("rank {}", *key.rank), ", ");
  return text;
}

const char* verdict_word(Verdict verdict) {
  static constexpr const char* kWords[] = {"OK", "WARNING", "BROKEN"};
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
  if (is_too_long()) {
    shown.snippets = false;
    above = text_above_tables(report, options, shown, style);
  }
  while (is_too_long() && shorten(report)) tables = tables_text(report, options, shown, style);
  while (is_too_long() && leave_out(report, shown)) {
    above = text_above_tables(report, options, shown, style);
    tables = tables_text(report, options, shown, style);
  }
  return above + tables;
}

}  // namespace ulpscope
