// What would any set of formats and loss scales have done to a recorded run? Table "least": the scale of each format at which the
// gradients lose the least part of their norm. Table "what_if": shares flushed, subnormal and overflowed, and the part of the norm
// that is lost, at every format and scale, of all gradients and of each group of tensors. Table and plot "scaling": what scalers
// would have done. Plot "lost": shares lost over scales. Definitions: docs/numerics.md, "What-ifs at every scale".
#pragma once

#include <vector>

#include "ulpscope/analyzers/tables/what_if_tables.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/totals/what_if_facts.h"

namespace ulpscope {

// Of a trace each time it is asked, which may have grown: reads only what is new.
class WhatIfAnalysis {
 public:
  explicit WhatIfAnalysis(WhatIfOptions options);
  WhatIfAnalysis(const WhatIfAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  const WhatIfOptions options_;
  const std::vector<int> replayed_;
  Followed<WhatIfFacts> run_;
};
// Throws Error (unreadable) where only counts were recorded.
Report analyze_what_if(const Snapshot& trace, const WhatIfOptions& options);

// Adds to a report of the trace the tables and the plot of what-ifs at every scale: of the formats that its gradients have, or of
// FP16 where they have none that is narrow; at 2^0 to 2^24 and at the scales of the run. Nothing where the recording tells nothing
// of gradients.
void add_what_if(const Snapshot& trace, const AnalysisOptions& options, Report& report);

}  // namespace ulpscope
