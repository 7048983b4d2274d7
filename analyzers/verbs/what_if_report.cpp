#include "ulpscope/analyzers/verbs/what_if_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/tables/what_if_tables.h"
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
  const WhatIfTables tables(run_.context(), options_, replayed_, run_.analysis().whole(), run_.steps().whole());
  if (!tables.has_values())
    throw unreadable_error(
        "'{}' holds counts without histograms, which tell nothing of other formats and scales: record with "
        "--record stats",
        trace.path());
  tables.add_to(report);
  return report;
}

Report analyze_what_if(const Snapshot& trace, const WhatIfOptions& options) { return WhatIfAnalysis(options).report(trace); }

void add_what_if(const Snapshot& trace, const AnalysisOptions& options, Report& report) {
  WhatIfOptions asked;
  static_cast<AnalysisOptions&>(asked) = options;
  asked.at_every_scale = true;
  std::vector<const FloatFormat*> formats;
  for (const TensorInfo& tensor : trace.tensors()) {
    if (!is_judged_gradient(tensor) || !is_narrow(tensor.dtype)) continue;
    const FloatFormat* const format = info(tensor.dtype).format;
    if (std::find(formats.begin(), formats.end(), format) == formats.end()) formats.push_back(format);
  }
  if (!formats.empty()) asked.formats = std::move(formats);
  asked = completed(std::move(asked));
  int first = asked.exponents.front(), last = asked.exponents.back();
  trace.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (!(row.scale_before > 0) || !std::isfinite(row.scale_before)) continue;
      first = std::min(first, std::max(kLeastScale, static_cast<int>(std::floor(std::log2(row.scale_before)))));
      last = std::max(last, std::min(kLargestScale, static_cast<int>(std::ceil(std::log2(row.scale_before)))));
    }
    return true;
  });
  asked.exponents.clear();
  for (int k = first; k <= last; ++k) asked.exponents.push_back(k);
  const std::vector<int> replayed;
  Followed<WhatIfFacts> run([&] { return WhatIfFacts(asked.formats, asked.exponents, replayed); }, asked);
  if (!run.update(trace)) report.complete = false;
  const WhatIfTables tables(run.context(), asked, replayed, run.analysis().whole(), run.steps().whole());
  if (!tables.tells_of_gradients()) return;
  Report all;
  tables.add_to(all);
  std::move(all.tables.begin(), all.tables.end(), std::back_inserter(report.tables));
  std::move(all.plots.begin(), all.plots.end(), std::back_inserter(report.plots));
}

}  // namespace ulpscope
