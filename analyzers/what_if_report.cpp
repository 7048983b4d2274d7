#include "ulpscope/analyzers/what_if_report.h"

#include "ulpscope/analyzers/what_if_tables.h"
#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

WhatIfOptions completed(WhatIfOptions options) {
  constexpr int kLastExponent = 24;
  if (options.exponents.empty())
    for (int k = 0; k <= kLastExponent; ++k) options.exponents.push_back(k);
  return options;
}

}  // namespace

WhatIfAnalysis::WhatIfAnalysis(WhatIfOptions options)
    : options_(completed(std::move(options))),
      replayed_(replayed_exponents(options_.scalings)),
      run_([this] { return WhatIfFacts(options_.formats, options_.exponents, replayed_); }, options_) {}

Report WhatIfAnalysis::report(const Snapshot& trace) {
  Report report;
  report.analysis = "whatif";
  report.title = "What other formats and loss scales would have done";
  report.sources.push_back(source_of(trace));
  report.complete = run_.update(trace);
  WhatIfTables(run_.context(), options_, replayed_, run_.analysis().whole(), run_.steps().whole()).add_to(report);
  return report;
}

Report analyze_what_if(const Snapshot& trace, const WhatIfOptions& options) { return WhatIfAnalysis(options).report(trace); }

}  // namespace ulpscope
