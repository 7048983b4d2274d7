#include "ulpscope/analyzers/ranges.h"

#include <fmt/format.h>

#include <array>

#include "ulpscope/analyzers/verdict.h"

namespace ulpscope {

const char* name_of(GroupBy by) {
  static constexpr std::array<const char*, 4> kNames{"tensor", "module", "phase", "role"};
  return kNames[static_cast<size_t>(by)];
}

RangeReport::RangeReport(const AnalysisContext& context, const RangeOptions& options, const StepFacts& steps,
                         const RangeFacts& facts, const FittingScales& fitting)
    : context_(context),
      selection_(context.selection),
      options_(options),
      steps_(steps),
      facts_(facts),
      fitting_(fitting),
      judged_(facts.ranges().judged(judged_room_)),
      broken_(facts.ranges().broken(broken_room_)),
      tensors_(context.selection.size()),
      broken_tensors_(context.selection.size()) {
  static const TensorRanges kNone;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i] = judged_.tensors.find(i);
    broken_tensors_[i] = broken_.tensors.find(i);
    if (tensors_[i] == nullptr && broken_tensors_[i] != nullptr) tensors_[i] = &kNone;
  }
  nonfinite_in_order_ = nonfinite_in_order();
  origin_ = origin_of_nonfinite();
  harm_ = harm_of_nonfinite();
}

Report analyze_ranges(const Snapshot& reader, const RangeOptions& options) { return RangeAnalysis(options).report(reader); }

Report RangeAnalysis::report(const Snapshot& reader) {
  Report report;
  report.analysis = "ranges";
  report.title = fmt::format("Ranges by {}", name_of(options_.by));
  report.sources.push_back(source_of(reader));
  report.complete = seen_.update(reader);
  const AnalysisContext& context = seen_.context();
  const FittingScales fitting = seen_.analysis().get<FittingScale>().result();
  const RangeReport ranges(context, options_, seen_.steps(), seen_.analysis().get<RangeFacts>(), fitting);
  ranges.add_findings(report);
  add_verdict(context.trace, report, "no range of values was found that costs accuracy.");
  ranges.add_tables(report);
  return report;
}

}  // namespace ulpscope
