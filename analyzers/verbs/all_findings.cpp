#include "ulpscope/analyzers/verbs/all_findings.h"

#include <algorithm>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/checked.h"
#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/verbs/info.h"

namespace ulpscope {

namespace {

constexpr Template kNoProblem{"verdict.no_problem", "no numerical problem in {steps:count step}{skipped}."};
constexpr Template kSkipped{"verdict.skipped", ", {skipped} skipped"};
constexpr Template kInSelection{"verdict.in_selection", "In the selection: {said}"};

std::vector<Part> parts_of(const ReportOptions& options) {
  std::vector<Part> parts;
  for (const Part part : kReportParts)
    if (options.only.empty() || std::find(options.only.begin(), options.only.end(), name_of(part)) != options.only.end())
      parts.push_back(part);
  return parts;
}

// Where something is at fault in the run, what its program warned of is the same told before, or matters less.
void lower_warnings(Report& report) {
  const bool is_at_fault = std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.severity > Severity::info && finding_rule(finding.code).is_about_run;
  });
  for (Finding& finding : report.findings)
    if (is_at_fault && finding.code == "recording.warning") finding.severity = Severity::info;
}

}  // namespace

const std::vector<std::string>& report_parts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> of_parts;
    for (const Part part : kReportParts) of_parts.emplace_back(name_of(part));
    return of_parts;
  }();
  return names;
}

struct ReportAnalysis::State {
  explicit State(ReportOptions asked)
      : options(std::move(asked)), parts(parts_of(options)), own(std::make_unique<FollowedRun>(options, parts)), run(*own) {}
  State(ReportOptions asked, FollowedRun& followed) : options(std::move(asked)), parts(parts_of(options)), run(followed) {}

  const ReportOptions options;
  const std::vector<Part> parts;
  const std::unique_ptr<FollowedRun> own;
  FollowedRun& run;
};

ReportAnalysis::ReportAnalysis(ReportOptions options) : state_(std::make_unique<State>(std::move(options))) {}
ReportAnalysis::ReportAnalysis(ReportOptions options, FollowedRun& run)
    : state_(std::make_unique<State>(std::move(options), run)) {}
ReportAnalysis::~ReportAnalysis() = default;
Report analyze_all(const Snapshot& reader, const ReportOptions& options) { return ReportAnalysis(options).report(reader); }

Report ReportAnalysis::report(const Snapshot& reader) {
  const ReportOptions& options = state_->options;
  const std::vector<Part>& parts = state_->parts;
  FollowedRun& run = state_->run;
  const bool complete = run.update(reader);
  Report report = info_for_report(run.context(), run.steps());
  report.analysis = "report";
  report.facts_in_brief = true;
  report.complete = complete;
  find_all(parts, run.facts(), report);

  const bool judged =
      std::any_of(parts.begin(), parts.end(), [](Part part) { return part != Part::recording && part != Part::tensor_cores; });
  if (judged && run.facts().steps().count > 0) {
    lower_warnings(report);
    const uint64_t skipped = run.facts().steps().skipped.size();
    add_verdict(run.context().trace, report,
                kNoProblem({{"steps", run.facts().steps().count},
                            {"skipped", skipped > 0 ? kSkipped({{"skipped", skipped}}) : Sentence()}}));
    report.checked = what_was_checked(run.facts(), parts);
    // What is said of some steps or tensors is not said of the run.
    if (options.selects()) report.verdict_text.begin_with(kInSelection);
  } else {
    sort_by_severity(report.findings);
  }
  return report;
}

}  // namespace ulpscope
