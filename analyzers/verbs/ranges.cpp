#include "ulpscope/analyzers/verbs/ranges.h"

#include <fmt/format.h>

#include <array>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"

namespace ulpscope {

namespace {

constexpr Template kRangesCostNothing{"verdict.ranges_cost_nothing", "No harmful underflow, overflow or saturation found."};

}  // namespace

Report analyze_ranges(const Snapshot& trace, const RangeOptions& options) { return RangeAnalysis(options).report(trace); }

Report RangeAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "ranges";
  report.title = fmt::format("Ranges by {}", name_of(options_.by));
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  find_all(kPartsOnRun, run_.whole().facts(), report);
  const RunFacts& facts = run_.asked().facts();
  // That there is nothing of what was asked for is all that there is to say of it.
  if (options_.selects() && facts.ranges().tensors().empty()) find_all(std::array{Part::ranges}, facts, report);
  add_verdict_on(Matter::of(Part::ranges, kRangesCostNothing()), trace, report);
  RangeTables(facts.context, options_, run_.asked().range_facts(), facts.ranges()).add_to(report);
  return report;
}

}  // namespace ulpscope
