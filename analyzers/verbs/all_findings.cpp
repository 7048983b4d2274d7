#include "ulpscope/analyzers/verbs/all_findings.h"

#include <algorithm>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/checked.h"
#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/findings/not_tried.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/subject/words/words.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/base/parse_number.h"

namespace ulpscope {

namespace {

constexpr Template kNoProblem{"verdict.no_problem", "no {lasting}numerical problem in {steps:count step}{skipped}{losses}."};
constexpr Template kNoProblemInRecorded{"verdict.no_problem_in_recorded",
                                        "no {lasting}numerical problem in the {recorded} of {steps:count step} whose tensors were "
                                        "recorded{skipped}{losses}."};
constexpr Template kNoProblemOfResults{
    "verdict.no_problem_of_results",
    "no {lasting}numerical problem in the losses of {steps:count step}, of which no tensors were "
    "recorded{skipped}{losses}."};
constexpr Template kUntilEnd{"verdict.until_end", "{end}; {said}"};
constexpr Template kSkipped{"verdict.skipped", ", {skipped} skipped"};
constexpr Template kLasting{"verdict.lasting", "lasting "};
constexpr Template kLossesWere{"verdict.losses_were", ", but the loss was NaN or Inf in {losses:count step} (first: step {step})"};
constexpr Template kNoProblemUntilEnd{"verdict.no_problem_until_end",
                                      "{end}; no {lasting}numerical problem in {steps:count recorded step}{skipped}{losses}."};
constexpr Template kStopped{"verdict.stopped", "stopped after {done}{of}"};
constexpr Template kCutShort{"verdict.cut_short", "the recording was cut short at step {step}"};
constexpr Template kTraceEnds{"verdict.trace_ends", "the trace ends after {done}{of}"};
constexpr Template kSteps{"verdict.steps", " {done:either step|steps}"};
constexpr Template kOfSteps{"verdict.of_steps", " of {steps:count step}"};
constexpr Template kInSelection{"verdict.in_selection", "In the selection: {said}"};

std::vector<Part> parts_of(const ReportOptions& options) {
  std::vector<Part> parts;
  for (const Part part : kReportParts)
    if (options.only.empty() || std::find(options.only.begin(), options.only.end(), name_of(part)) != options.only.end())
      parts.push_back(part);
  return parts;
}

// How many steps the run was to have; 0: that is not known.
uint64_t steps_asked_for(const Snapshot& trace) {
  const std::string_view name = words_of(trace.run()).steps;
  for (const SettingInfo& setting : trace.settings())
    if (!name.empty() && setting.name == name) return parse_number<uint64_t>(setting.value).value_or(0);
  return 0;
}

// Why the trace ends before the run was to end, as a phrase; nothing where it does not.
Sentence early_end(const Snapshot& trace, uint64_t done) {
  const std::vector<EventRow>& events = trace.events();
  const auto first = [&](EventKind kind) {
    return std::find_if(events.begin(), events.end(), [&](const EventRow& event) { return event.kind == kind; });
  };
  const auto cut_short = first(EventKind::cut_short);
  const bool stopped = first(EventKind::stopped) != events.end();
  if (!stopped && cut_short != events.end()) return kCutShort({{"step", ordinal(cut_short->step)}});
  if (!stopped && trace.writer_state() != WriterState::dead && trace.closing_note().empty()) return {};
  const uint64_t asked = steps_asked_for(trace);
  const Sentence of = asked > done ? kOfSteps({{"steps", asked}}) : kSteps({{"done", done}});
  return (stopped ? kStopped : kTraceEnds)({{"done", done}, {"of", of}});
}

Sentence no_problem(const RunFacts& facts) {
  const StepTotals& steps = facts.steps();
  const AnalysisOptions& options = facts.context.options;
  const uint64_t skipped = steps.skipped.size();
  const Value of_skipped = skipped > 0 ? kSkipped({{"skipped", skipped}}) : Sentence();
  // Where a loss that was not finite did harm, there is a problem.
  const StepSet& nonfinite = steps.nonfinite_losses;
  const Value of_losses =
      nonfinite.empty() ? Sentence() : kLossesWere({{"losses", nonfinite.size()}, {"step", ordinal(nonfinite.first())}});
  const Argument count{"steps", steps.count}, some_skipped{"skipped", of_skipped}, losses{"losses", of_losses};
  const Argument lasting{"lasting", nonfinite.empty() ? Sentence() : kLasting()};
  const Sentence end = options.restricts_steps() ? Sentence() : early_end(facts.context.trace, steps.last.step + 1);
  if (steps.with_ops == steps.count)
    return end.empty() ? kNoProblem({lasting, count, some_skipped, losses})
                       : kNoProblemUntilEnd({{"end", end}, lasting, count, some_skipped, losses});
  const Sentence said = steps.with_ops == 0
                            ? kNoProblemOfResults({lasting, count, some_skipped, losses})
                            : kNoProblemInRecorded({{"recorded", steps.with_ops}, lasting, count, some_skipped, losses});
  return end.empty() ? said : kUntilEnd({{"end", end}, {"said", said}});
}

// Tensors were asked for of which the trace has no row.
bool matches_nothing(const RunFacts& facts, std::span<const Part> parts) {
  const bool sees_rows = std::any_of(parts.begin(), parts.end(),
                                     [](Part part) { return part == Part::run || part == Part::ranges || part == Part::updates; });
  return sees_rows && facts.context.options.restricts_tensors() && facts.ranges().tensors().empty();
}

// Where something is at fault in the run, what its program warned of is the same told before, or matters less. That a run learned
// nothing is no such fault: what was warned of may be why.
void lower_warnings(Report& report) {
  constexpr std::string_view kLearnedNothing[] = {"run.no_better_than_guessing", "run.loss_stayed"};
  const bool is_at_fault = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    const bool is_outcome =
        std::find(std::begin(kLearnedNothing), std::end(kLearnedNothing), finding.code) != std::end(kLearnedNothing);
    return finding.severity > Severity::info && finding_rule(finding.code).is_about_run && !is_outcome;
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
  if (matches_nothing(run.facts(), parts)) {
    // The run's facts and its verdict would look like an answer.
    report.facts.clear();
    find_one("range.no_rows", run.facts(), report);
    return report;
  }
  find_all(parts, run.facts(), report);

  const bool judged =
      std::any_of(parts.begin(), parts.end(), [](Part part) { return part != Part::recording && part != Part::tensor_cores; });
  const bool has_steps = run.facts().steps().count > 0;
  const bool lacks_steps = std::any_of(report.findings.begin(), report.findings.end(),
                                       [](const Finding& finding) { return finding.code == "run.no_steps"; });
  if (judged && (has_steps || lacks_steps)) {
    lower_warnings(report);
    add_verdict(run.context().trace, report, has_steps ? no_problem(run.facts()) : Sentence());
    report.checked = what_was_checked(run.facts(), parts);
    if (std::find(parts.begin(), parts.end(), Part::ranges) != parts.end()) tell_what_is_not_tried(run.facts(), report);
    // What is said of some steps or tensors is not said of the run.
    if (options.selects()) report.verdict_text.begin_with(kInSelection);
  } else {
    sort_by_severity(report.findings);
  }
  return report;
}

}  // namespace ulpscope
