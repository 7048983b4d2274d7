// Do the numbers fit their format? Per tensor, module, phase or role: the shares flushed to zero, subnormal and overflowed, as the
// recorded roundings counted them and, where asked for, as a what-if in other formats; gradients as scaled and true (divided by the
// loss scale); headroom; and exponent histograms against the format's limits. Worst first. Definitions: docs/numerics.md. Findings:
// those of Part::ranges, and what they came of (verdict.h).
#pragma once

#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/tables/range_tables.h"

namespace ulpscope {

struct RangeOptions : AnalysisOptions, RangeTableOptions {};

// Of a trace each time it is asked, which may have grown: reads only what is new.
class RangeAnalysis {
 public:
  explicit RangeAnalysis(const RangeOptions& options) : options_(options), run_(options_, {.range_formats = options_.formats}) {}
  RangeAnalysis(const RangeAnalysis&) = delete;
  Report report(const Snapshot& trace);

 private:
  const RangeOptions options_;
  JudgedRun run_;
};
Report analyze_ranges(const Snapshot& trace, const RangeOptions& options = {});

}  // namespace ulpscope
