#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kWouldFlush{"range.gradients_would_flush",
                               "FP16 would need a loss scale: without one, {some} of {gradients:count gradient tensor} would lose "
                               "more than {limit:%} of their nonzero elements."};
constexpr Template kFp16NeedsScale{"advice.fp16_needs_scale", "`ulpscope scale {trace}` shows which scale. BF16 needs none."};

void find_what_would_flush(const RunFacts& facts, Findings& found) {
  const double limit = facts.context.options.flushed_limit;
  Suspects suspects(facts.selection);
  std::vector<uint32_t> judged_tensors;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!is_computed_gradient(tensor.role)) continue;
    if (is_narrow(tensor.dtype)) return;  // the roundings themselves were recorded
    const RangeTotals& totals = judged.totals;
    if (totals.rows == 0 || tensor.stays_wide) continue;
    if (judged.in_fp16.rows == 0) continue;
    // A sum that is zero but for rounding, as that of a bias before batch_norm, asks for nothing.
    if (judged.noise_rows == totals.rows) continue;
    judged_tensors.push_back(i);
    const RoundingBounds &rounded = judged.in_fp16.bounds, &read = judged.read_in_fp16;
    const double lost = std::max(share(rounded.flushed.lower, rounded.base), share(read.flushed.lower, read.base));
    if (lost <= limit) continue;
    std::vector<Quantity> values{{"flushed_in_fp16", share_cell(rounded.flushed, rounded.base), Unit::share}};
    if (read.base > 0) values.push_back({"flushed_or_read_as_zero", share_cell(read.flushed, read.base), Unit::share});
    suspects.add(lost, i, std::move(values));
  }
  if (suspects.empty()) return;
  found.add_judged(Severity::info,
                   kWouldFlush({{"some", suspects.size()},
                                {"gradients", facts.selection.count_outputs(judged_tensors)},
                                {"limit", {limit, Unit::share}}}),
                   suspects.worst(), kFp16NeedsScale({{"trace", trace_name(facts.context.trace)}}));
}

}  // namespace

extern constinit const FindingRule range_gradients_would_flush{
    .code = "range.gradients_would_flush",
    .part = Part::ranges,
    .raised = "FP16 without a loss scale would make more than 1% of a gradient's nonzero elements zero.",
    .meaning = "Training this model in FP16 needs a loss scale.",
    .help = "Choose a scale that `ulpscope scale` shows, or use BF16.",
    .picture = Picture::flushed,
    .is_about_run = false,
    .shown_by = "experiments/failures/diverges_fp32.toml",
    .find = find_what_would_flush,
};

}  // namespace ulpscope::findings
