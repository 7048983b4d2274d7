#include "ulpscope/analyzers/all_findings.h"

#include <algorithm>
#include <type_traits>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/fitting_scale.h"
#include "ulpscope/analyzers/followed.h"
#include "ulpscope/analyzers/info.h"
#include "ulpscope/analyzers/range_facts.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/scale_facts.h"
#include "ulpscope/analyzers/update_facts.h"
#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

namespace {

using ReportFacts = Together<Wanted<FittingScale>, Wanted<RangeFacts>, Wanted<ScaleFacts>, Wanted<UpdateFacts>>;

constexpr std::array kParts{Part::recording, Part::run, Part::ranges, Part::scale, Part::updates, Part::tensor_cores};

}  // namespace

const std::vector<std::string>& report_parts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> of_parts;
    for (const Part part : kParts) of_parts.emplace_back(name_of(part));
    return of_parts;
  }();
  return names;
}

struct ReportAnalysis::State {
  explicit State(ReportOptions asked)
      : options(std::move(asked)),
        seen(
            [this] {
              return ReportFacts(Wanted(FittingScale(options.flushed_limit), wanted(Part::ranges) || wanted(Part::scale)),
                                 Wanted(RangeFacts({}), wanted(Part::ranges)), Wanted(ScaleFacts(), wanted(Part::scale)),
                                 Wanted(UpdateFacts(), wanted(Part::updates)));
            },
            options) {}
  bool wanted(Part part) const {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), name_of(part)) != options.only.end();
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
  const bool complete = seen.update(reader);
  const AnalysisContext& context = seen.context();
  Report report = info_for_report(context, seen.steps());
  report.analysis = "report";
  report.complete = complete;

  const auto get = [&]<typename A>(std::type_identity<A>) -> const A* {
    const Wanted<A>& wanted = seen.analysis().get<Wanted<A>>();
    return wanted ? &wanted.get() : nullptr;
  };
  std::optional<FittingScales> fitting;
  if (const FittingScale* const scales = get(std::type_identity<FittingScale>())) fitting = scales->result();
  const RunFacts facts(context, seen.steps(),
                       {get(std::type_identity<RangeFacts>()), fitting ? &*fitting : nullptr, get(std::type_identity<ScaleFacts>()),
                        get(std::type_identity<UpdateFacts>())});
  std::vector<Part> parts;
  for (const Part part : kParts)
    if (state_->wanted(part)) parts.push_back(part);
  find_all(parts, facts, report);

  const bool judged =
      std::any_of(parts.begin(), parts.end(), [](Part part) { return part != Part::recording && part != Part::tensor_cores; });
  if (judged && facts.steps().count > 0) {
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
