#include <algorithm>
#include <optional>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kFirstNonfinite{
    "range.nonfinite.first", "First {recorded}{kind}{harm}: {place}{rank}, step {step}, {elements} of {count:count element}."};
constexpr Template kFirstNonfiniteOfOne{"range.nonfinite.first_of_one",
                                        "First {recorded}{kind}{harm}: {place}{rank}, step {step}."};
constexpr Template kFirstLogOfZero{
    "range.nonfinite.first_log_of_zero",
    "First {recorded}Inf{harm}: {place}{rank}, step {step}: log(0) = -Inf in {elements} of {count:count element}."};
constexpr Template kSecondMomentOverflow{
    "range.nonfinite.second_moment",
    "{format} overflow in Adam's second moment: {place}{rank}, step {step}, {elements} of {count:count element}."};
constexpr Template kRecorded{"range.nonfinite.recorded", "recorded "};
constexpr Template kNonfiniteThatDidHarm{"range.nonfinite.that_did_harm", " that did harm"};
constexpr Template kNonfiniteCameIn{"range.nonfinite.came_in",
                                    "{kind} came in with {place}{rank}, step {step}, {elements} of {count:count element}."};
constexpr Template kBecomesNonfinite{"range.nonfinite.becomes",
                                     "{place}{rank} becomes {kind} in {elements} of {count:count element}."};
constexpr Template kCameOutInStep{"range.nonfinite.came_out_in_step",
                                  "It came in step {step}{rank}, in {elements} of {count:count element}."};
constexpr Template kFilledIn{"range.nonfinite.filled_in", "{place} fills in the Inf that this NaN comes from."};
constexpr Template kGivenUp{"range.nonfinite.given_up", "Step {step}, the last one, ended before an update."};
constexpr Template kNonfiniteHarmless{"range.nonfinite.harmless", "None of it reached a weight."};

// An earlier one did none.
bool is_first_harmful(const RangeJudgement& ranges, const NonfiniteOrigin& origin) {
  return ranges.harm() != Severity::info && std::any_of(ranges.beginnings().begin(), ranges.beginnings().end(),
                                                        [&](const NonfiniteBeginning& one) { return one.first < origin.position; });
}

// What the row held, in words.
Sentences nonfinite_title(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation) {
  const std::optional<TensorRow> row = row_at(facts, origin.tensor, origin.position);
  const TensorInfo& tensor = facts.selection.tensor(origin.tensor);
  const uint64_t nan = row ? row->statistics.nan : 0, inf = row ? stored_infinities(*row, tensor.dtype) : 0;
  const uint64_t count = row ? row->statistics.count : 0;
  const Argument kind{"kind", kind_of(nan, inf)}, rank{"rank", of_rank(facts, origin.position.rank)};
  const Argument elements{"elements", nan + inf}, all{"count", count}, step{"step", ordinal(origin.position.step)};
  const Argument place{"place", tensor_place(facts.selection, origin.tensor)};
  const Sentences& story = explanation.story;
  if (explanation.cause == NonfiniteCause::opaque)
    return Sentences{explanation.headline, kCameOutInStep({step, rank, elements, all})} + story;
  if (!explanation.headline.empty())
    return Sentences{explanation.headline, kBecomesNonfinite({place, rank, kind, elements, all})} + story;
  if (facts.selection.op(origin.tensor).kind == OpKind::source)
    return kNonfiniteCameIn({kind, place, rank, step, elements, all}) + story;
  if (explanation.cause == NonfiniteCause::second_moment_overflow) {
    const Argument format{"format", format_name(*info(tensor.dtype).format)};
    return kSecondMomentOverflow({format, place, rank, step, elements, all}) + story;
  }
  const Argument harm{"harm", is_first_harmful(facts.ranges(), origin) ? kNonfiniteThatDidHarm() : Sentence()};
  const Argument in_pass{"place", tensor_place_in_pass(facts.selection, origin.tensor)};
  const bool may_be_older = OriginFacts(facts, origin).unrecorded_from().has_value();
  const Argument recorded{"recorded", may_be_older ? kRecorded() : Sentence()};
  if (count < 2) return kFirstNonfiniteOfOne({recorded, kind, harm, in_pass, rank, step}) + story;
  const bool holds_logs_of_zero = explanation.cause == NonfiniteCause::log_of_zero &&
                                  facts.selection.op(origin.tensor).name == name_of(OpFunction::log) && nan == 0 &&
                                  row->statistics.positive_infinity == 0;
  if (!holds_logs_of_zero) return kFirstNonfinite({recorded, kind, harm, in_pass, rank, step, elements, all}) + story;
  // It says of all elements what the first sentence of the story does of one.
  return kFirstLogOfZero({recorded, harm, in_pass, rank, step, elements, all}) + story.from(1);
}

void tell_nonfinite(const RunFacts& facts, const NonfiniteOrigin& origin, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const NonfiniteExplanation explanation = explain(facts, origin);
  Extent extent = nonfinite_extent(facts, origin);
  if (const size_t tensors = count_nonfinite_tensors(facts); tensors > 1)
    extent.value = {"tensors", count_cell(tensors), Unit::count};
  Sentences title = nonfinite_title(facts, origin, explanation);
  if (ranges.harm() == Severity::info && !ranges.is_filtered()) title += kNonfiniteHarmless();
  if (ranges.gave_up_last_step()) title += kGivenUp({{"step", ordinal(facts.steps().last.step)}});
  if (origin.filled) title += kFilledIn({{"place", tensor_place(facts.selection, *origin.filled)}});
  title += further_harm(facts, origin);
  title += nonfinite_tensors(facts);
  const bool overflowed = is_overflow(explanation.cause) && !explanation.is_of_constants && ranges.harm() != Severity::info;
  found.add(ranges.harm(), std::move(title), nonfinite_evidence(facts, origin),
            (overflowed ? overflow_advice(facts, origin, explanation) : explanation.help) + wide_on_gpu(facts, origin) +
                advice_on_captures(facts, origin, explanation),
            std::move(extent));
}

void find_nonfinite(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins())
    if (facts.ranges().start_of(origin) == NonfiniteStart::other) tell_nonfinite(facts, origin, found);
}

}  // namespace

extern constinit const FindingRule range_nonfinite{
    .code = "range.nonfinite",
    .part = Part::ranges,
    .raised = "A tensor held NaN or Inf, and no overflow of it was counted.",
    .meaning = "The finding names the first in order of execution that did harm; most others follow from it.",
    .help = "`ulpscope nan` shows the element, its operands and the cause.",
    .picture = Picture::nonfinite_flow,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/log_of_zero.toml",
    .find_start = find_nonfinite,
};

}  // namespace ulpscope::findings
