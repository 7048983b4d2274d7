#include <algorithm>

#include "ulpscope/analyzers/findings/batch_text.h"
#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/captured_sample.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOneBadBatch{"data.nonfinite.one_batch", "one batch"};
constexpr Template kBadBatches{"data.nonfinite.batches", "{batches} batches"};
constexpr Template kBadSample{"data.nonfinite.sample", ": {sample}"};
constexpr Template kDataNonfinite{"data.nonfinite",
                                  "The data held NaN or infinity: {batches} of {tensor}, first in step {step}{sample}."};
constexpr Template kMendBadSample{"advice.mend_bad_sample", "Mend or leave out that sample: no format and no loss scale helps."};

// The sample of the first element that was captured of the batch, or "".
std::string place_of_first(const Snapshot& trace, uint32_t tensor, uint64_t step) {
  for (const CaptureRow& capture : trace.captures({step, step + 1})) {
    if (capture.tensor != tensor || capture.node != 0) continue;
    if (std::string place = sample_of(trace, tensor, capture); !place.empty()) return place;
  }
  return "";
}

void find_bad_data(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  Suspects suspects(facts.selection);
  std::optional<std::pair<RowPosition, uint32_t>> first;
  for (const auto& [i, unused, broken] : ranges.tensors()) {
    if (facts.selection.tensor(i).role != Role::input || facts.selection.op(i).kind != OpKind::source) continue;
    const NonfiniteRows held = ranges.nonfinite(i);
    if (held.rows == 0 || held.overflowed > 0) continue;
    suspects.add(static_cast<double>(held.rows), i,
                 {{"batches", count_cell(held.rows), Unit::count},
                  {"elements", count_cell(ranges.nan(i) + ranges.infinities(i)), Unit::count}},
                 held.first);
    if (!first || *held.first < first->first) first = {*held.first, i};
  }
  if (!first) return;
  const NonfiniteRows held = ranges.nonfinite(first->second);
  const uint64_t rows = held.rows;
  Extent extent = suspects.extent();
  extent.steps = held.steps.size();
  extent.value = {"batches", count_cell(rows), Unit::count};
  const std::string place = place_of_first(facts.context.trace.of_rank(first->first.rank), first->second, first->first.step);
  const Value step = ordinal(first->first.step);
  Sentence sample;
  if (!place.empty()) sample = kBadSample({{"sample", Name{NameKind::data, place}}});
  const Sentences advice{kMendBadSample(), kExportListsBatch({{"trace", trace_name(facts.context.trace)}, {"step", step}})};
  found.add(std::max(ranges.harm(), Severity::warning),
            kDataNonfinite({{"batches", rows == 1 ? kOneBadBatch() : kBadBatches({{"batches", rows}})},
                            {"tensor", tensor_name(facts.selection, first->second)},
                            {"step", step},
                            {"sample", sample}}),
            suspects.worst(), advice, std::move(extent));
}

}  // namespace

extern constinit const FindingRule data_nonfinite{
    .code = "data.nonfinite",
    .part = Part::ranges,
    .raised = "A batch held NaN or infinity.",
    .meaning = "The data themselves are at fault, not a format: the loss and all gradients of such a batch are NaN in FP32 too.",
    .help = "Look at the file and the row that the finding names, and leave the sample out or mend it.",
    .picture = Picture::nonfinite_flow,
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow"},
    .shown_by = "experiments/failures/nan_in_data.toml",
    .find_start = find_bad_data,
};

}  // namespace ulpscope::findings
