#include "ulpscope/analyzers/nan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/followed_run.h"
#include "ulpscope/analyzers/nan_tables.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

namespace {

// Findings that say that there were NaN or infinities; others count here as what they came of.
constexpr Codes kOnNonfinite = {
    "range.nonfinite",    "range.values_overflow", "range.gradients_overflow", "data.nonfinite", "range.clipping_hides_infinity",
    "run.loss_nonfinite", "scale.no_step_taken",   "scale.collapse",           "scale.thrashing"};

// Leaves what tells of NaN and infinities, with its causes and all that came of these.
void keep_nonfinite(const Snapshot& trace, std::string_view healthy, Report& report) {
  add_verdict(trace, report, healthy);
  std::vector<bool> keeps(report.findings.size());
  const auto is_on_it = [&](size_t finding) { return kOnNonfinite.contain(report.findings[finding].code); };
  for (size_t i = 0; i < keeps.size(); ++i) keeps[i] = is_on_it(i);
  for (const Cause& cause : report.causes) {
    if (!is_on_it(cause.finding) && std::none_of(cause.consequences.begin(), cause.consequences.end(), is_on_it)) continue;
    keeps[cause.finding] = true;
    for (const size_t i : cause.consequences) keeps[i] = true;
  }
  std::vector<Finding> kept;
  for (size_t i = 0; i < keeps.size(); ++i)
    if (keeps[i]) kept.push_back(std::move(report.findings[i]));
  report.findings = std::move(kept);
  add_verdict(trace, report, healthy);
}

// Where a run broke, the first that reached the loss or the weights and was there when it did; else the one that it is judged by.
const NonfiniteBeginning* main_beginning(const std::vector<NonfiniteBeginning>& all, const RunFacts& facts) {
  if (all.empty()) return nullptr;
  const uint64_t broke = facts.step_facts.broken_from();
  auto found = std::find_if(all.begin(), all.end(), [&](const NonfiniteBeginning& one) {
    return facts.broke() && (one.loss || one.weights) && one.first.step <= broke && one.last_step + 1 >= broke;
  });
  const std::optional<NonfiniteOrigin>& origin = facts.ranges().origin();
  if (found == all.end() && origin)
    found = std::find_if(all.begin(), all.end(), [&](const NonfiniteBeginning& one) { return one.tensor == origin->tensor; });
  return found == all.end() ? &all.front() : &*found;
}

}  // namespace

NanAnalysis::NanAnalysis(const AnalysisOptions& options)
    : run_(std::make_unique<FollowedRun>(options, std::vector{Part::run, Part::ranges, Part::scale, Part::updates})) {}
NanAnalysis::~NanAnalysis() = default;
Report analyze_nan(const Snapshot& trace, const AnalysisOptions& options) { return NanAnalysis(options).report(trace); }

Report NanAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "nan";
  report.title = "NaN and infinities";
  report.sources.push_back(source_of(trace));
  report.complete = run_->update(trace);
  const RunFacts& facts = run_->facts();
  const AnalysisContext& context = run_->context();
  find_all({Part::run, Part::ranges, Part::scale, Part::updates}, facts, report);

  const std::vector<NonfiniteBeginning> beginnings = find_beginnings(context);
  keep_nonfinite(
      trace, beginnings.empty() ? "no recorded tensor held NaN or infinity." : "no NaN or infinity was found to do harm.", report);
  NanTables tables(facts, beginnings);
  report.add_fact("steps", count_cell(facts.steps().count), Unit::count);
  report.add_fact("beginnings", count_cell(beginnings.size()), Unit::count);
  if (const NonfiniteBeginning* const beginning = main_beginning(beginnings, facts)) tables.add_story(*beginning, report);
  return report;
}

}  // namespace ulpscope
