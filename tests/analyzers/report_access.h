// Looking things up in a Report.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/verbs/ranges.h"

namespace ulpscope::analyzers_test {

// Of FP16 and BF16.
inline RangeOptions what_ifs() {
  RangeOptions options;
  options.formats = {&binary16, &bfloat16};
  return options;
}

inline const Finding* find_finding(const Report& report, const std::string& code) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(), [&](const Finding& f) { return f.code == code; });
  return found == report.findings.end() ? nullptr : &*found;
}

// The first sentence of that template, nullptr: there is none.
inline const Sentence* sentence_of(const Sentences& sentences, std::string_view id) {
  const auto found = std::find_if(sentences.begin(), sentences.end(), [&](const Sentence& each) { return each.id() == id; });
  return found == sentences.end() ? nullptr : &*found;
}

inline const Table& table(const Report& report, const std::string& name) {
  static const Table none;
  for (const Table& candidate : report.tables) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no table " << name;
  return none;
}

inline Cell cell(const Table& table, size_t row, const std::string& column) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == column && row < table.rows.size()) return table.rows[row].cells[i];
  }
  ADD_FAILURE() << "no row " << row << " or column " << column << " in " << table.name;
  return Unknown{};
}

// The first row whose first cell is `name`.
inline size_t row_of(const Table& table, const std::string& name) {
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i].cells[0] == Cell(name)) return i;
  }
  ADD_FAILURE() << "no row " << name << " in " << table.name;
  return table.rows.size();
}

inline Cell fact(const Report& report, const std::string& name) {
  for (const Quantity& quantity : report.facts) {
    if (quantity.name == name) return quantity.value;
  }
  ADD_FAILURE() << "no fact " << name;
  return Unknown{};
}

inline double lower(const Cell& cell) {
  if (const double* value = std::get_if<double>(&cell)) return *value;
  if (const Interval* interval = std::get_if<Interval>(&cell)) return interval->lower;
  ADD_FAILURE() << "no number";
  return NAN;
}

inline double upper(const Cell& cell) {
  if (const Interval* interval = std::get_if<Interval>(&cell)) return interval->upper;
  return lower(cell);
}

inline bool is_unknown(const Cell& cell) { return std::holds_alternative<Unknown>(cell); }
inline bool not_applicable(const Cell& cell) { return std::holds_alternative<NotApplicable>(cell); }

}  // namespace ulpscope::analyzers_test
