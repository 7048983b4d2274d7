#include "ulpscope/analyzers/verbs/nan.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/findings/not_tried.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/tables/nan_tables.h"

namespace ulpscope {

namespace {

constexpr Template kNoTensorHeldNan{"verdict.no_tensor_held_nan", "No recorded tensor holds NaN or Inf."};
constexpr Template kNanDidNoHarm{"verdict.nan_did_no_harm", "No NaN or Inf does harm."};

// Findings that say that there were NaN or Inf; others count here as what they came of.
constexpr Codes kOnNonfinite = {
    "range.nonfinite",    "range.values_overflow",   "range.gradients_overflow", "data.nonfinite", "range.clipping_hides_infinity",
    "run.loss_nonfinite", "run.test_loss_nonfinite", "scale.no_step_taken",      "scale.collapse", "scale.thrashing"};

}  // namespace

Report analyze_nan(const Snapshot& trace, const AnalysisOptions& options) { return NanAnalysis(options).report(trace); }

Report NanAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "nan";
  report.title = "NaN and Inf";
  report.keeps_all_rows = true;
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  find_all(kPartsOnRun, run_.whole().facts(), report);
  const RunFacts& facts = run_.asked().facts();
  leave_out_advice_on_nan(report);

  const std::vector<NonfiniteBeginning>& beginnings = facts.ranges().beginnings();
  const RangeJudgement& whole = run_.whole().facts().ranges();
  const Template& nothing_found = whole.beginnings().empty() && !whole.has_masks() ? kNoTensorHeldNan : kNanDidNoHarm;
  const Matter matter{nothing_found(), [](const Finding& finding) { return kOnNonfinite.contain(finding.code); }};
  add_verdict_on(matter, trace, report);
  const NanTables tables(facts);
  report.add_fact("steps", count_cell(facts.steps().count), Unit::count);
  if (facts.steps().with_ops < facts.steps().count)
    report.add_fact("detailed_steps", count_cell(facts.steps().with_ops), Unit::count);
  if (trace.writer_state() == WriterState::dead) report.add_fact("writer", std::string("ended without closing the trace"));
  report.add_fact("beginnings", count_cell(beginnings.size()), Unit::count);
  const RunFacts& of_run = run_.whole().facts();
  const AnalysisOptions& options = facts.context.options;
  const NonfiniteOrigin* const of_all = of_run.ranges().main_origin();
  if (beginnings.empty() && facts.ranges().main_origin() != nullptr && of_all != nullptr &&
      of_all->position.step < options.steps.first) {
    report.add_fact("began", fmt::format("before these steps, in step {}", of_all->position.step));
    return report;
  }
  // Gradients that overflowed in skipped steps are no part of what a run is judged by.
  if (const NonfiniteOrigin* const origin = facts.ranges().main_origin())
    tables.add_story(*origin, report);
  else if (!beginnings.empty())
    tables.add_story({beginnings.front().tensor, beginnings.front().first, beginnings.front().overflowed}, report);
  return report;
}

}  // namespace ulpscope
