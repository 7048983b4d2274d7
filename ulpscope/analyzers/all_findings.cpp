#include "ulpscope/analyzers/all_findings.h"

#include <algorithm>

#include "ulpscope/analyzers/info.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/recording_health.h"
#include "ulpscope/analyzers/scale.h"

namespace ulpscope {

const std::vector<std::string>& report_parts() {
  static const std::vector<std::string> parts{"recording", "run", "ranges", "scale", "updates"};
  return parts;
}

Report analyze_all(const TraceReader& reader, const ReportOptions& options) {
  const auto wanted = [&](const char* part) {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), part) != options.only.end();
  };
  Report report = analyze_info(reader, options);
  report.analysis = "report";
  // Of the facts of info, those that a reader of findings needs.
  static constexpr const char* kFacts[] = {"schema_version", "writer",     "experiment_name",  "precision",   "backend",
                                           "level",          "steps",      "first_loss",       "final_loss",  "test_accuracy",
                                           "skipped_steps",  "loss_scale", "seconds_per_step", "tensor_rows", "peak_memory_bytes"};
  std::erase_if(report.facts, [](const Quantity& fact) {
    return std::none_of(std::begin(kFacts), std::end(kFacts), [&](const char* name) { return fact.name == name; });
  });
  report.tables.clear();

  const Selection selection(reader, options);
  const StepFacts steps = step_facts(reader, options.steps);
  RangeOptions range_options;
  static_cast<AnalysisOptions&>(range_options) = options;
  range_options.formats.clear();  // no tables
  ScaleOptions scale_options;
  static_cast<AnalysisOptions&>(scale_options) = options;
  std::vector<RowConsumer*> consumers;
  RangeAnalysis ranges(reader, selection, range_options, steps);
  ScaleAnalysis scale(reader, selection, scale_options, steps);
  if (wanted("ranges")) consumers.push_back(&ranges);
  if (wanted("scale")) consumers.push_back(&scale);
  if (!consumers.empty()) report.complete = visit_selected(reader, selection, options, consumers) && report.complete;

  if (wanted("recording")) add_recording_findings(reader, options, report);
  if (wanted("run")) add_loss_findings(reader, options, report);
  if (wanted("ranges")) ranges.add_findings(report);
  if (wanted("scale")) {
    scale.finish();
    scale.add_findings(report);
  }
  if (wanted("updates")) {
    AnalysisOptions before = options;
    before.steps.last = std::min(before.steps.last, steps.broken_from);
    add_update_findings(reader, selection, before, report);
  }
  sort_by_severity(report.findings);
  for (const Severity severity : {Severity::error, Severity::warning, Severity::info}) {
    const char* name = severity == Severity::error ? "errors" : severity == Severity::warning ? "warnings" : "notes";
    report.add_fact(name,
                    count_cell(std::count_if(report.findings.begin(), report.findings.end(),
                                             [&](const Finding& finding) { return finding.severity == severity; })),
                    Unit::count);
  }
  return report;
}

}  // namespace ulpscope
