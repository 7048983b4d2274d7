#include "ulpscope/analyzers/all_findings.h"

#include <algorithm>
#include <type_traits>

#include "ulpscope/analyzers/info.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/recording_health.h"
#include "ulpscope/analyzers/run_findings.h"
#include "ulpscope/analyzers/scale.h"
#include "ulpscope/analyzers/tensor_core_findings.h"
#include "ulpscope/analyzers/update_facts.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

namespace {

using ReportFacts = Together<Wanted<FittingScale>, Wanted<RangeFacts>, Wanted<ScaleFacts>, Wanted<UpdateFacts>>;

}  // namespace

const std::vector<std::string>& report_parts() {
  static const std::vector<std::string> names{"recording", "run", "ranges", "scale", "updates", "tensor_cores"};
  return names;
}

struct ReportAnalysis::State {
  explicit State(ReportOptions asked)
      : options(std::move(asked)),
        seen(
            [this] {
              return ReportFacts(Wanted(FittingScale(options.flushed_limit), wanted("ranges") || wanted("scale")),
                                 Wanted(RangeFacts({}), wanted("ranges")), Wanted(ScaleFacts(), wanted("scale")),
                                 Wanted(UpdateFacts(), wanted("updates")));
            },
            options) {}
  bool wanted(const char* part) const {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), part) != options.only.end();
  }

  const ReportOptions options;
  Followed<ReportFacts> seen;
};

ReportAnalysis::ReportAnalysis(ReportOptions options) : state_(std::make_unique<State>(std::move(options))) {}
ReportAnalysis::~ReportAnalysis() = default;
Report analyze_all(const Snapshot& reader, const ReportOptions& options) { return ReportAnalysis(options).report(reader); }

Report ReportAnalysis::report(const Snapshot& reader) {
  const ReportOptions& options = state_->options;
  Followed<ReportFacts>& seen = state_->seen;
  const auto wanted = [&](const char* part) { return state_->wanted(part); };
  const bool complete = seen.update(reader);
  const AnalysisContext& context = seen.context();
  const StepFacts& steps = seen.steps();
  Report report = info_for_report(context, steps);
  report.analysis = "report";
  report.complete = complete;

  const auto get = [&]<typename A>(std::type_identity<A>) -> const A& { return seen.analysis().get<Wanted<A>>().get(); };
  if (wanted("recording")) add_recording_findings(context, steps, report);
  if (wanted("run")) add_loss_findings(context, steps, report);
  if (wanted("run") && wanted("updates")) add_divergence_finding(context, steps, get(std::type_identity<UpdateFacts>()), report);
  if (wanted("run")) add_guessing_finding(context, steps, report);
  if (seen.analysis().get<Wanted<FittingScale>>()) {
    const FittingScales fitting = get(std::type_identity<FittingScale>()).result();
    RangeOptions range_options;
    static_cast<AnalysisOptions&>(range_options) = options;
    range_options.formats.clear();  // no tables
    if (wanted("ranges"))
      RangeReport(context, range_options, steps, get(std::type_identity<RangeFacts>()), fitting).add_findings(report);
    if (wanted("scale")) ScaleReport(context, steps, get(std::type_identity<ScaleFacts>()), fitting).add_findings(report);
  }
  if (wanted("updates")) add_update_findings(context, steps, get(std::type_identity<UpdateFacts>()), report);
  if (wanted("tensor_cores")) add_tensor_core_findings(context, report);

  const bool judged = wanted("run") || wanted("ranges") || wanted("scale") || wanted("updates");
  if (judged && steps.whole().count > 0) {
    const bool is_whole = options.only.empty() && options.modules.empty() && options.ops.empty() && options.phases.empty() &&
                          options.roles.empty() && !options.restricts_steps();
    add_verdict(context.trace, report,
                is_whole ? "nothing was found that costs accuracy or steps." : "nothing was found in what was asked for.");
  } else {
    sort_by_severity(report.findings);
  }
  return report;
}

}  // namespace ulpscope
