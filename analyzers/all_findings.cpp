#include "ulpscope/analyzers/all_findings.h"

#include <algorithm>
#include <memory>

#include "ulpscope/analyzers/info.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/recording_health.h"
#include "ulpscope/analyzers/scale.h"
#include "ulpscope/analyzers/tensor_core_findings.h"

namespace ulpscope {

namespace {

// What every part is made from. Outlives the parts.
struct Inputs {
  Inputs(const Snapshot& trace, const AnalysisOptions& chosen)
      : reader(trace),
        options(chosen),
        selection(trace, chosen),
        steps(step_facts(trace, chosen.steps)),
        fitting(trace, selection, format_to_ask(trace), chosen.flushed_limit, steps.broken_from) {}

  const Snapshot& reader;
  const AnalysisOptions& options;
  const Selection selection;
  const StepFacts steps;
  FittingScale fitting;  // takes the rows before the parts
};

struct Part {
  std::shared_ptr<RowConsumer> rows;  // what reads the tensor rows for it, or nothing
  std::function<void(Report&)> add_findings;
};

// A part that is an analysis of tensor rows.
template <typename Analysis, typename Options>
Part analysis_of_rows(const Inputs& inputs, Options options) {
  static_cast<AnalysisOptions&>(options) = inputs.options;
  struct WithOptions : RowConsumer {
    WithOptions(const Inputs& from, Options chosen)
        : options(std::move(chosen)), analysis(from.reader, from.selection, options, from.steps, from.fitting) {}
    void see(const TensorRow& row) override { analysis.see(row); }
    void add(const TensorRow& row) override { analysis.add(row); }
    void finish() override { analysis.finish(); }
    const Options options;
    Analysis analysis;
  };
  const auto rows = std::make_shared<WithOptions>(inputs, std::move(options));
  return {rows, [rows](Report& report) { rows->analysis.add_findings(report); }};
}

struct PartRow {
  const char* name;
  Part (*make)(const Inputs&);
};

constexpr PartRow kParts[] = {
    {"recording",
     [](const Inputs& inputs) {
       return Part{{}, [&](Report& report) { add_recording_findings(inputs.reader, inputs.options, report); }};
     }},
    {"run",
     [](const Inputs& inputs) {
       return Part{{}, [&](Report& report) { add_loss_findings(inputs.reader, inputs.options, report); }};
     }},
    {"ranges",
     [](const Inputs& inputs) {
       RangeOptions options;
       options.formats.clear();  // no tables
       return analysis_of_rows<RangeAnalysis>(inputs, std::move(options));
     }},
    {"scale", [](const Inputs& inputs) { return analysis_of_rows<ScaleAnalysis>(inputs, ScaleOptions()); }},
    {"updates",
     [](const Inputs& inputs) {
       return Part{{}, [&](Report& report) {
                     AnalysisOptions before = inputs.options;
                     before.steps.last = std::min(before.steps.last, inputs.steps.broken_from);
                     add_update_findings(inputs.reader, inputs.selection, before, report);
                   }};
     }},
    {"tensor_cores",
     [](const Inputs& inputs) {
       return Part{{}, [&](Report& report) { add_tensor_core_findings(inputs.reader, inputs.selection, report); }};
     }},
};

}  // namespace

const std::vector<std::string>& report_parts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const PartRow& part : kParts) all.emplace_back(part.name);
    return all;
  }();
  return names;
}

Report analyze_all(const Snapshot& reader, const ReportOptions& options) {
  Report report = info_for_report(reader, options);
  report.analysis = "report";

  Inputs inputs(reader, options);
  std::vector<Part> parts;
  std::vector<RowConsumer*> consumers;
  for (const PartRow& row : kParts) {
    if (!options.only.empty() && std::find(options.only.begin(), options.only.end(), row.name) == options.only.end()) continue;
    parts.push_back(row.make(inputs));
    if (parts.back().rows) consumers.push_back(parts.back().rows.get());
  }
  if (!consumers.empty()) consumers.insert(consumers.begin(), &inputs.fitting);
  if (!consumers.empty()) report.complete = visit_selected(reader, inputs.selection, options, consumers) && report.complete;
  for (const Part& part : parts) part.add_findings(report);

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
