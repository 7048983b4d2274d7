#include "ulpscope/analyzers/verbs/errors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/op_errors.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

namespace {

constexpr Template kAsExactAsTypes{
    "verdict.ops_are_exact", "No output is off by {limit:%} of its norm or more, and by more than twice what rounding it costs."};
constexpr Template kNothingNarrow{"verdict.nothing_in_16_bits",
                                  "No output in 16 bits that was rounded to nearest was computed again."};
constexpr Template kNoneAsked{"verdict.no_shadow_in_asked", "No op of the selection was computed again."};
constexpr Template kNoShadowOfOthers{"verdict.no_shadow_of_others",
                                     "No op was computed again in a wider type: only runs of `ulpscope train` can be."};
constexpr Template kNoShadow{"verdict.no_shadow",
                             "No op was computed again in a wider type: `ulpscope train EXPERIMENT --shadow every=10` does that."};

const std::vector<Column>& error_columns() {
  static const std::vector<Column> columns{{"injected", ColumnKind::number, Unit::share},
                                           {"floor", ColumnKind::number, Unit::share},
                                           {"over_floor", ColumnKind::number, Unit::ratio},
                                           {"largest", ColumnKind::number, Unit::share},
                                           {"steps", ColumnKind::number, Unit::count}};
  return columns;
}

Cell ratio_cell(double ratio) { return std::isfinite(ratio) ? Cell(ratio) : Cell(NotApplicable{}); }

void append_errors(const OpError& error, std::vector<Cell>& cells) {
  for (const Cell& cell :
       {Cell(error.injected), Cell(error.floor), ratio_cell(error.over_floor), Cell(error.largest), count_cell(error.steps)})
    cells.push_back(cell);
}

Table outputs_table(const RunFacts& facts, size_t limit) {
  Table table{
      "outputs",
      "What ops made of their inputs, beside the same in a wider type",
      {{"tensor", ColumnKind::text}, {"type", ColumnKind::text}},
      {},
      0,
      "Injected: the norm of what is stored less the wide result, over the norm of that, the median of the steps. Floor: the "
      "same of that result rounded once."};
  table.columns.insert(table.columns.end(), error_columns().begin(), error_columns().end());
  for (const OpError& error : facts.op_errors()) {
    if (limit > 0 && table.rows.size() >= limit) {
      ++table.rows_left_out;
      continue;
    }
    const Selection& selection = facts.selection;
    TableRow row{selection.key(error.tensor),
                 {selection.name(error.tensor), std::string(info(selection.tensor(error.tensor).dtype).name)}};
    append_errors(error, row.cells);
    table.rows.push_back(std::move(row));
  }
  return table;
}

// A row is the output that is farthest off of an op, by its name and phase.
Table ops_table(const RunFacts& facts) {
  Table table{"ops",
              "The same by op, of each its output that is farthest off",
              {{"op", ColumnKind::text}, {"phase", ColumnKind::text}, {"outputs", ColumnKind::number, Unit::count}},
              {},
              0,
              ""};
  table.columns.insert(table.columns.end(), error_columns().begin(), error_columns().end());
  std::map<std::pair<std::string, Phase>, std::pair<const OpError*, uint64_t>> ops;
  std::vector<std::pair<std::string, Phase>> order;
  for (const OpError& error : facts.op_errors()) {
    const OpInfo& op = facts.selection.op(error.tensor);
    const std::pair key(op.name, op.phase);
    const auto [place, is_new] = ops.try_emplace(key, &error, 0);
    if (is_new) order.push_back(key);
    ++place->second.second;
  }
  for (const auto& key : order) {
    const auto& [error, outputs] = ops.at(key);
    TableRow row{{}, {key.first, std::string(name_of(key.second)), count_cell(outputs)}};
    append_errors(*error, row.cells);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Report analyze_errors(const Snapshot& trace, const AnalysisOptions& options) { return ErrorAnalysis(options).report(trace); }

Report ErrorAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "errors";
  report.title = "Errors of ops";
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  find_all(kPartsOnRun, run_.whole().facts(), report);
  const RunFacts& facts = run_.asked().facts();
  const std::vector<OpError>& errors = facts.op_errors();
  const std::vector<SettingInfo>& settings = facts.context.settings.all();
  const bool was_asked_for = std::any_of(settings.begin(), settings.end(), [](const SettingInfo& setting) {
    return setting.name == "shadow.every" && setting.value != "0";
  });
  const Sentence nothing = !errors.empty()                             ? kAsExactAsTypes({{"limit", {OpError::kFelt, Unit::share}}})
                           : !run_.whole().facts().op_errors().empty() ? kNoneAsked()
                           : !is_of_own_engine(trace.run())            ? kNoShadowOfOthers()
                           : was_asked_for                             ? kNothingNarrow()
                                                                       : kNoShadow();
  add_verdict_on(Matter::of(Part::errors, nothing), trace, report);
  if (errors.empty()) return report;
  uint64_t steps = 0;
  for (const OpError& error : errors) steps = std::max(steps, error.steps);
  report.add_fact("shadowed_steps", count_cell(steps), Unit::count);
  report.add_fact("outputs", count_cell(errors.size()), Unit::count);
  report.tables.push_back(outputs_table(facts, facts.context.options.limit));
  report.tables.push_back(ops_table(facts));
  return report;
}

}  // namespace ulpscope
