#include <algorithm>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kHeldNonfinite{"range.nonfinite", "{tensors:count tensor} held NaN or infinity."};
constexpr Template kHeldHarmless{"range.nonfinite.harmless",
                                 "{tensors:count tensor} held NaN or infinity, and none of it reached a weight."};
constexpr Template kFirstNonfinite{"range.nonfinite.first", "The first"};
constexpr Template kFirstHarmful{"range.nonfinite.first_harmful", "The first that did harm"};
constexpr Template kNonfiniteBeganAt{"range.nonfinite.began_at", "{first}, in step {step}, is {place}."};
constexpr Template kNonfiniteCameInAs{"range.nonfinite.came_in_as", "{first}, in step {step}, came in as {place}."};

void tell_nonfinite(const RunFacts& facts, const NonfiniteOrigin& origin, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const NonfiniteExplanation explanation = explain(facts, origin);
  const auto is_earlier = [&](const NonfiniteBeginning& one) { return one.first < origin.position; };
  const bool is_first =
      ranges.harm() == Severity::info || std::none_of(ranges.beginnings().begin(), ranges.beginnings().end(), is_earlier);
  Extent extent = nonfinite_extent(facts, origin);
  const size_t tensors = count_nonfinite_tensors(facts);
  extent.value = {"tensors", count_cell(tensors), Unit::count};
  const bool came_in = facts.selection.op(origin.tensor).kind == OpKind::source;
  const bool is_harmless = ranges.harm() == Severity::info && !ranges.is_filtered();
  found.add(ranges.harm(),
            {(is_harmless ? kHeldHarmless : kHeldNonfinite)({{"tensors", tensors}}),
             (came_in ? kNonfiniteCameInAs : kNonfiniteBeganAt)({{"first", is_first ? kFirstNonfinite() : kFirstHarmful()},
                                                                 {"step", ordinal(origin.position.step)},
                                                                 {"place", place_of(facts, origin)}}),
             further_harm(facts, origin)},
            nonfinite_evidence(facts, origin),
            Advice(explanation.story) + explanation.help + advice_on_captures(facts, origin, explanation), std::move(extent));
}

void find_nonfinite(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins())
    if (facts.ranges().start_of(origin) == NonfiniteStart::other) tell_nonfinite(facts, origin, found);
}

}  // namespace

extern constinit const FindingRule range_nonfinite{
    .code = "range.nonfinite",
    .part = Part::ranges,
    .raised = "Tensors held NaN or infinity.",
    .meaning = "The first of them in order of execution is where to look; the others follow from it.",
    .help = "Its capture has the element and its operands: `ulpscope export --table captures`.",
    .picture = Picture::nonfinite_flow,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/log_of_zero.toml",
    .find_start = find_nonfinite,
};

}  // namespace ulpscope::findings
