#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ulpscope/analyzers/findings/batch_text.h"
#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/captured_sample.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kBadSample{"data.nonfinite.sample", "{kind} in the data: {sample}{rank}, step {step}."};
constexpr Template kBadBatchesHold{"data.nonfinite.batches_hold", "{batches} batches of {place} hold NaN or Inf."};
constexpr Template kBadBatches{"data.nonfinite", "{kind} in the data: {batches} batches of {place}, first in step {step}{rank}."};
constexpr Template kBadBatch{"data.nonfinite.one_batch", "{kind} in the data: one batch of {place}, in step {step}{rank}."};
constexpr Template kHarmless{"data.nonfinite.harmless", "None of it reached a weight."};
constexpr Template kFixBadSample{"advice.fix_sample", "Fix or drop the sample: no format and no loss scale helps."};
constexpr Template kFixBadSamples{"advice.fix_samples", "Fix or drop the samples: no format and no loss scale helps."};

constexpr Template kScaleBeforeCast{"advice.scale_before_cast",
                                    "Its type is {format}, which ends at {largest}: if the data were finite before that cast, "
                                    "scale them before it. Else fix or drop "
                                    "the samples."};

// A cast of the data to a type with a smaller range than FP32's may have made the infinities.
bool may_have_overflowed(const RunFacts& facts, uint32_t tensor) {
  const FloatFormat* const format = info(facts.selection.tensor(tensor).dtype).format;
  return format != nullptr && 2 * format->largest_finite() < binary32.largest_finite() && facts.ranges().nan(tensor) == 0;
}

// The sample of the first element that was captured of the batch, or "".
std::string place_of_first(const Snapshot& trace, uint32_t tensor, uint64_t step) {
  for (const CaptureRow& capture : trace.captures({step, step + 1})) {
    if (capture.tensor != tensor || capture.node != 0) continue;
    if (std::string place = sample_of(trace, tensor, capture); !place.empty()) return place;
  }
  return "";
}

// Some of these batches were trained on, and it got nowhere: the model, or the loss, leaves out what is missing.
bool is_harmless(const RunFacts& facts, uint32_t tensor, const RowPosition& first) {
  if (facts.ranges().harm() != Severity::info || facts.ranges().is_filtered()) return false;
  const NonfiniteBeginning* const one = facts.ranges().beginning_of({tensor, first, 0});
  return one != nullptr && !one->loss && !one->weights && !one->statistic && one->skipped < one->rows;
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
  const std::string named = place_of_first(facts.context.trace.of_rank(first->first.rank), first->second, first->first.step);
  const Argument kind{"kind", kind_of(ranges.nan(first->second), ranges.infinities(first->second))};
  const Argument step{"step", ordinal(first->first.step)}, batches{"batches", rows};
  const Argument rank{"rank", of_rank(facts, first->first.rank)};
  const Argument place{"place", tensor_place(facts.selection, first->second)};
  Sentences title, advice;
  if (!named.empty()) {
    title = kBadSample({kind, {"sample", Name{NameKind::data, named}}, rank, step});
    if (rows > 1) title += kBadBatchesHold({batches, place});
    advice = rows > 1 ? kFixBadSamples() : kFixBadSample();
  } else {
    title = rows > 1 ? kBadBatches({kind, batches, place, step, rank}) : kBadBatch({kind, place, step, rank});
    advice = kFixBadSamples();
  }
  if (may_have_overflowed(facts, first->second)) {
    const FloatFormat& format = *info(facts.selection.tensor(first->second).dtype).format;
    advice = kScaleBeforeCast({{"format", format_name(format)}, {"largest", format.largest_finite()}});
  }
  const bool knows_batches = is_of_batch(facts.selection.op(first->second)) && facts.context.trace.row_count("batches") > 0;
  if (knows_batches && (named.empty() || rows > 1)) advice += kExportListsBatch({{"trace", trace_name(facts.context.trace)}, step});
  if (is_harmless(facts, first->second, first->first)) {
    title += kHarmless();
    found.add(Severity::info, std::move(title), suspects.worst(), {}, std::move(extent));
    return;
  }
  found.add(std::max(ranges.harm(), Severity::warning), std::move(title), suspects.worst(), advice, std::move(extent));
}

}  // namespace

extern constinit const FindingRule data_nonfinite{
    .code = "data.nonfinite",
    .part = Part::ranges,
    .raised =
        "A batch held NaN or Inf. A note where none of it reached a loss or a weight, as where a loss leaves out targets that are "
        "missing.",
    .meaning = "The data are at fault, not a format: the loss and all gradients of such a batch are NaN in FP32 too.",
    .help = "Fix or drop the sample in the file and row that the finding names.",
    .picture = Picture::nonfinite_flow,
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow"},
    .shown_by = "experiments/failures/nan_in_data.toml",
    .find_start = find_bad_data,
};

}  // namespace ulpscope::findings
