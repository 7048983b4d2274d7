#include "ulpscope/analyzers/report/report.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ulpscope {

const char* name_of(SettingChange::Way way) {
  static constexpr const char* kNames[] = {"lower", "raise", "set"};
  return kNames[static_cast<size_t>(way)];
}

const char* name_of(Severity severity) {
  static constexpr std::array<const char*, 3> kNames{"info", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

const char* name_of(Verdict verdict) {
  static constexpr std::array<const char*, 3> kNames{"ok", "warning", "broken"};
  return kNames[static_cast<size_t>(verdict)];
}

const char* name_of(Unit unit) {
  static constexpr std::array<const char*, 10> kNames{"none",  "count",   "share", "bits",  "exponent",
                                                      "bytes", "seconds", "ratio", "scale", "power_of_two"};
  return kNames[static_cast<size_t>(unit)];
}

const char* name_of(PlotKind kind) {
  static constexpr std::array<const char*, 4> kNames{"histogram", "steps", "heatmap", "graph"};
  return kNames[static_cast<size_t>(kind)];
}

Cell bounded(double lower, double upper) {
  if (lower == upper) return lower;
  return Interval{lower, upper};
}

Cell count_cell(uint64_t count) {
  return count <= INT64_MAX ? Cell(static_cast<int64_t>(count)) : Cell(static_cast<double>(count));
}

Cell text_or_none(std::string text) { return text.empty() ? Cell(NotApplicable{}) : Cell(std::move(text)); }
Cell known_or_unknown(double value) {
  if (std::isnan(value)) return Unknown{};
  return value;
}

Unit cell_unit(const Column& column, const TableRow& row) {
  return column.unit == Unit::none && column.kind == ColumnKind::number ? row.unit : column.unit;
}

void Report::add_fact(std::string_view name, Cell value, Unit unit) {
  facts.push_back({std::string(name), std::move(value), unit});
}

void sort_by_severity(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return static_cast<int>(a.severity) > static_cast<int>(b.severity); });
}

bool has_finding(const Report& report, Severity at_least) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const Finding& finding) { return static_cast<int>(finding.severity) >= static_cast<int>(at_least); });
}

}  // namespace ulpscope
