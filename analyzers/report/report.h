// What an analysis found, as data: facts, findings, tables and plots. Analyzers make Reports; renderers (text.h, json.h) and views
// show them. Nothing here is formatted, so that no renderer has to read text back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ulpscope/analyzers/report/cell.h"
#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/report/setting_change.h"

namespace ulpscope {

// Raised when a member changes its name or meaning.
inline constexpr int kReportVersion = 3;

enum class Severity : uint8_t { info, warning, error };
const char* name_of(Severity severity);

// Where something was seen. Views jump to it. What does not apply is left out.
struct RowKey {
  std::string run;
  std::optional<int> rank;
  std::optional<uint64_t> step;
  std::optional<uint64_t> micro_batch;
  std::optional<int> loss_index;
  std::string phase;
  std::optional<uint64_t> op;  // the op's id
  std::string op_name;
  std::string module;
  std::optional<int> slot;
  std::string role;
  std::string parameter;
  std::optional<int64_t> element;
  std::string name;      // of a tensor, as texts call it
  std::string location;  // of the op in the user's program, or of its forward op: "train.py:41"
};

struct Quantity {
  std::string name;  // whole words with underscores
  Cell value;
  Unit unit = Unit::none;
};

struct Evidence {
  RowKey key;
  std::vector<Quantity> values;
};

// What a finding is about: tensors, by their indices in the trace's table, none for the run as a whole, and from which step on; and
// how much of it there was.
struct Extent {
  std::vector<uint32_t> tensors = {};
  std::optional<uint64_t> first_step = {};
  std::optional<uint32_t> origin = {};  // the one of them that was first, where that is known
  bool gives_zeros = false;             // something was divided by what became infinite, in many steps
  bool since_scale_fell = false;        // the loss scale had been higher before, where nothing speaks for its being too low
  std::optional<uint64_t> steps = {};   // in how many it was seen, where they were counted
  std::optional<Quantity> value = {};   // the number of the title that matters most; else the first of the evidence is
};

// What shows it best: the course of the run over its steps, a quantity of tensors over them, the way of what is not finite, or what
// became of updates.
enum class Picture : uint8_t { none, course, flushed, overflowed, nonfinite_elements, largest_exponents, nonfinite_flow, updates };

// Lines that can be pasted into the program that wrote the trace.
struct Snippet {
  std::string does;  // the setting that they change, or the id of the advice that they follow
  std::string code;

  bool operator==(const Snippet&) const = default;
};

struct Finding {
  std::string code;  // "range.gradients_flushed": stable, for programs
  Severity severity = Severity::info;
  Sentences title;
  std::vector<Evidence> evidence;
  Sentences suggestion;                     // what to do about it, or nothing
  Extent extent = {};                       // what decides whether it came of another finding, and how much there was
  std::vector<SettingChange> changes = {};  // of settings that the suggestion names
  std::vector<Snippet> snippets = {};       // ways to do what it says, each by itself
  Picture picture = Picture::none;
  std::string module = {};  // of the first evidence: that of the op, or of the one that it works for where it is in none
};

// The verdict on a run: no numerical problem was found in what was checked, something will or may cost accuracy or steps, or the
// run holds NaN, makes no progress or takes no step.
enum class Verdict : uint8_t { ok, warning, broken };
const char* name_of(Verdict verdict);  // "warning"

// A finding that came of no other, and what came of it, by their places in Report::findings.
struct Cause {
  size_t finding = 0;
  std::vector<size_t> consequences;
};

enum class ColumnKind : uint8_t { text, number, flag };

struct Column {
  std::string name;
  ColumnKind kind = ColumnKind::number;
  Unit unit = Unit::none;
};

struct TableRow {
  RowKey key;
  std::vector<Cell> cells;
  Unit unit = Unit::none;  // of the cells in columns without a unit, where each row is another quantity
};

// Of the row's cell in that column.
Unit cell_unit(const Column& column, const TableRow& row);

struct Table {
  std::string name;
  std::string title;
  std::vector<Column> columns;
  std::vector<TableRow> rows;
  uint64_t rows_left_out = 0;  // beyond the limit that was asked for
  std::string note;
};

struct Axis {
  std::string name;
  Unit unit = Unit::none;
};

// A line across exponents: values in the bins below `exponent` lie under it.
struct Limit {
  std::string name;
  int exponent = 0;
};

struct Series {
  std::string name;
  RowKey key;
  std::vector<double> x;
  std::vector<double> y;
  // Of a histogram: what lies below and above all bins.
  double below = 0;
  double above = 0;

  // That have both numbers.
  size_t points() const { return std::min(x.size(), y.size()); }
};

// Something that happened at a place of the x axis, or from one to another.
struct Mark {
  double from = 0;
  double to = 0;  // equal to `from`: a point
  std::string text;
  Severity severity = Severity::info;
};

struct PlotNode {
  std::string name;
  std::string detail;  // what is to be known of it, or ""
  RowKey key;
  bool marked = false;  // it lies on the path that the graph is about
};
struct PlotLink {
  size_t from = 0, to = 0;  // places in Plot::nodes
  bool marked = false;
};

enum class PlotKind : uint8_t {
  histogram,  // x: exponents, ascending; y: counts
  steps,      // x: steps, ascending; y holds until the next x. What is not known there is left out
  heatmap,    // each series a row, the lowest first where rows are exponents; x: where its columns begin; y: what its cells hold,
              // NaN: nothing
  graph,      // nodes and links, in an order in which links lead onward; nothing else
};
const char* name_of(PlotKind kind);

struct Plot {
  std::string name;
  std::string title;
  PlotKind kind = PlotKind::histogram;
  Axis x = {};
  Axis y = {};
  std::vector<Limit> limits = {};  // ascending
  std::vector<Series> series = {};
  uint64_t series_left_out = 0;  // beyond the limit that was asked for, or what fits
  double x_end = kNoEnd;         // of what has columns or holds until the next x: where the last one ends
  // Of a heatmap: what its rows are. Exponents: the first row's is `first_exponent`, each further one's is one more.
  Axis rows = {};
  int first_exponent = 0;
  std::vector<Mark> marks = {};
  std::vector<PlotNode> nodes = {};
  std::vector<PlotLink> links = {};
  // A table of the report says the same: text and JSON leave it out.
  bool only_pictured = false;

  static constexpr double kNoEnd = std::numeric_limits<double>::quiet_NaN();
  // Where what holds from point i of a series on ends: a step on, where nothing says more.
  double end_of(const Series& row, size_t i) const {
    if (i + 1 < row.points()) return row.x[i + 1];
    return x_end > row.x[i] ? x_end : row.x[i] + 1;
  }
  bool has_exponent_rows() const { return kind == PlotKind::heatmap && rows.unit == Unit::exponent; }
};

// A trace that the report was made from.
struct ReportSource {
  std::string path;
  std::string run;
  int rank = 0;
};

struct Report {
  std::string analysis;  // "ranges"
  std::string title;
  std::vector<ReportSource> sources;
  bool complete = true;         // false: cancelled before all rows were seen
  bool facts_in_brief = false;  // they are what a run came to, and stand in one line
  bool keeps_all_rows = false;  // none may give way to fit a page: they say where an element comes from and where it went
  // Of what was analysed; none where it is not about how a run went.
  std::optional<Verdict> verdict;
  Sentences verdict_text;     // what happened, where and when
  Sentences checked;          // what the verdict rests on, and what nobody looked at
  std::vector<Cause> causes;  // the most harmful first
  std::vector<Quantity> facts;
  std::vector<Finding> findings;
  std::vector<Table> tables;
  std::vector<Plot> plots;

  void add_fact(std::string_view name, Cell value, Unit unit = Unit::none);
};

// What the fact of that name holds; nothing where there is none, or it is no T.
template <typename T>
std::optional<T> find_fact(const Report& report, std::string_view name) {
  for (const Quantity& fact : report.facts)
    if (const T* const value = std::get_if<T>(&fact.value); value != nullptr && fact.name == name) return *value;
  return std::nullopt;
}

// Errors first; equal severities keep their order.
void sort_by_severity(std::vector<Finding>& findings);
// True iff some finding is at least this severe.
bool has_finding(const Report& report, Severity at_least);

}  // namespace ulpscope
