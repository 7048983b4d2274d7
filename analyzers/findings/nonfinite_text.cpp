#include "ulpscope/analyzers/findings/nonfinite_text.h"

#include <algorithm>
#include <optional>

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

extern constinit const Template kNanShowsElement{"advice.nan_shows_element",
                                                 "`ulpscope nan {trace}` shows the element, and what helps."};
extern constinit const Template kNanShowsOperands{"advice.nan_shows_operands",
                                                  "`ulpscope nan {trace}` shows the element and its operands, and what helps."};
extern constinit const Template kNoTypeHelps{"advice.no_type_helps",
                                             "No type helps, for its range is that of FP32: look at what made values grow."};

namespace {

constexpr Template kPlace{"place.tensor", "{tensor}"};
constexpr Template kPlaceInPhase{"place.tensor_in_phase", "{tensor} in {phase}"};
constexpr Template kPlaceOfRank{"place.tensor_of_rank", "{tensor} of rank {rank}"};
constexpr Template kPlaceOfRankInPhase{"place.tensor_of_rank_in_phase", "{tensor} of rank {rank} in {phase}"};
constexpr Template kExportShows{"advice.export_shows_element",
                                "`ulpscope export {trace} --table captures --step {step}` shows an element of it in another "
                                "step."};
constexpr Template kStatisticHoldsIt{"nonfinite.statistic_holds_it",
                                     "{tensor} holds it from step {step} on: no skipped step undoes that, and evaluation reads "
                                     "it."};
constexpr Template kDividedByIt{"nonfinite.divided_by_it", "{tensor} divided by it, and gave zeros in {steps:count step}."};
constexpr Template kBecameTooLarge{"overflow.became_too_large",
                                   "{place} became too large for {format} in step {step}, {elements:count element}: "
                                   "{tensors:count tensor} held NaN or infinity in the run."};

}  // namespace

Sentence place_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const Name tensor = tensor_name(facts.selection, origin.tensor);
  const Name phase{NameKind::phase, std::string(name_of(facts.selection.op(origin.tensor).phase))};
  const Value rank = ordinal(origin.position.rank);
  const bool has_ranks = facts.context.trace.ranks().size() > 1;
  if (facts.selection.name_tells_phase(origin.tensor))
    return has_ranks ? kPlaceOfRank({{"tensor", tensor}, {"rank", rank}}) : kPlace({{"tensor", tensor}});
  return has_ranks ? kPlaceOfRankInPhase({{"tensor", tensor}, {"rank", rank}, {"phase", phase}})
                   : kPlaceInPhase({{"tensor", tensor}, {"phase", phase}});
}

size_t count_nonfinite_tensors(const RunFacts& facts) {
  std::vector<uint32_t> all;
  for (const auto& [i, judged, broken] : facts.ranges().tensors()) {
    if (facts.ranges().is_mask(i) && facts.ranges().nonfinite(i).rows == 0) continue;
    if (judged.totals.nonfinite() > 0 || (broken && broken->totals.nonfinite() > 0)) all.push_back(i);
  }
  return facts.selection.count_outputs(all);
}

std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const RangeJudgement& ranges = facts.ranges();
  std::vector<Evidence> evidence;
  // What that row held, as it stands beside its step: over the run there may be many more.
  const auto add = [&](uint32_t i, const RowPosition& position) {
    uint64_t nan = 0, infinities = 0;
    facts.context.trace.of_rank(position.rank)
        .visit_rows_without_histograms({position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
          for (const TensorRow& row : rows) {
            if (row.tensor != i || position_of(row, position.rank) != position) continue;
            nan = row.statistics.nan;
            infinities = stored_infinities(row, facts.selection.tensor(i).dtype);
          }
          return true;
        });
    evidence.push_back({facts.selection.key(i, position),
                        {{"nan", count_cell(nan), Unit::count}, {"infinity", count_cell(infinities), Unit::count}}});
  };
  add(origin.tensor, origin.position);
  for (const uint32_t i : ranges.nonfinite_in_order()) {
    if (evidence.size() == kMostEvidence) break;
    if (i != origin.tensor) add(i, *ranges.nonfinite(i).first);
  }
  return evidence;
}

namespace {

// In many steps something was divided by what it made infinite.
bool gives_zeros(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const NonfiniteBeginning* const one = facts.ranges().beginning_of(origin);
  return one != nullptr && !one->statistic && wastes_many(one->zeros.steps, facts.steps().count);
}

}  // namespace

Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin) {
  Extent extent{facts.ranges().nonfinite_in_order(), origin.position.step, origin.tensor};
  std::vector<uint32_t>& tensors = extent.tensors;
  if (std::find(tensors.begin(), tensors.end(), origin.tensor) == tensors.end()) tensors.push_back(origin.tensor);
  extent.gives_zeros = gives_zeros(facts, origin);
  // Of a gradient steps that were taken; where there are none, those that were skipped for it.
  const uint64_t taken = facts.ranges().nonfinite(origin.tensor).steps.size();
  const RangeJudgement::Tensor* const rows = facts.ranges().find(origin.tensor);
  const uint64_t steps = taken > 0 || rows == nullptr ? taken : rows->judged.scaled.overflow_skipped.size();
  if (steps > 0) extent.steps = steps;
  return extent;
}

Sentence advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation) {
  const Name trace = trace_name(facts.context.trace);
  if (explanation.capture && facts.ranges().main_origin()->tensor == origin.tensor) {
    const bool has_operands = !explanation.capture->operands(explanation.capture->element()).empty();
    return (has_operands ? kNanShowsOperands : kNanShowsElement)({{"trace", trace}});
  }
  // A tensor that held them often is captured less and less often.
  std::optional<uint64_t> other;
  for (const CaptureRow& node : facts.context.trace.captures({0, UINT64_MAX})) {
    if (node.tensor == origin.tensor && node.node == 0 && (!other || node.step <= origin.position.step)) other = node.step;
  }
  if (!other) return {};
  return kExportShows({{"trace", trace}, {"step", ordinal(*other)}});
}

Sentence further_harm(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const RangeJudgement& ranges = facts.ranges();
  if (ranges.harm() == Severity::info) return {};
  const NonfiniteBeginning* const one = ranges.beginning_of(origin);
  if (one == nullptr) return {};
  if (one->statistic)
    return kStatisticHoldsIt(
        {{"tensor", tensor_name(facts.selection, one->statistic->tensor)}, {"step", ordinal(one->statistic->position.step)}});
  if (!gives_zeros(facts, origin)) return {};
  return kDividedByIt({{"tensor", tensor_name(facts.selection, one->zeros.tensor)}, {"steps", one->zeros.steps}});
}

void tell_overflow(const RunFacts& facts, const NonfiniteOrigin& origin, const Advice& help, Findings& found) {
  Extent extent = nonfinite_extent(facts, origin);
  extent.value = {"elements", count_cell(origin.overflowed), Unit::count};
  const NonfiniteExplanation explanation = explain(facts, origin);
  const FloatFormat& format = *info(facts.selection.tensor(origin.tensor).dtype).format;
  const bool none_helps = has_range_of_fp32(facts.selection.tensor(origin.tensor).dtype);
  Advice advice = !explanation.help.text.empty() ? explanation.help : none_helps ? Advice(kNoTypeHelps()) : help;
  advice.text += explanation.story;
  advice.text += advice_on_captures(facts, origin, explanation);
  found.add(facts.ranges().harm(),
            {kBecameTooLarge({{"place", place_of(facts, origin)},
                              {"format", format_name(format)},
                              {"step", ordinal(origin.position.step)},
                              {"elements", origin.overflowed},
                              {"tensors", count_nonfinite_tensors(facts)}}),
             further_harm(facts, origin)},
            nonfinite_evidence(facts, origin), std::move(advice), std::move(extent));
}

}  // namespace ulpscope::findings
