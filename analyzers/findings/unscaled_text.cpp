#include "ulpscope/analyzers/findings/unscaled_text.h"

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTheRecordedTypes{"place.recorded_types", "the recorded types"};
constexpr Template kJudgedBefore{"scale.judged_before", " in the steps before step {step}"};
constexpr Template kNoneFits{"scale.none_would_fit",
                             "For {types} no single loss scale fits{judged}: one gradient needs at least {smallest}, another "
                             "overflows above {largest}."};
constexpr Template kWouldFit{"scale.would_fit",
                             "For {types} the smallest loss scale that fits{judged} is {smallest}, the largest {largest}."};

}  // namespace

Sentence scales_that_would_fit(const RunFacts& facts) {
  const FittingScales& fitting = facts.fitting();
  const auto& [unused, largest, smallest, hidden] = fitting.run;
  const Value types = fitting.what_if ? Value(format_name(*fitting.what_if)) : Value(kTheRecordedTypes());
  const Value judged = facts.broke() ? Value(kJudgedBefore({{"step", ordinal(facts.scale().broken_from)}})) : Value();
  if (facts.scale().none_fits())
    return kNoneFits({{"types", types},
                      {"smallest", power_value(smallest->lower)},
                      {"largest", power_value(largest->upper)},
                      {"judged", judged}});
  if (smallest && smallest->lower != ExponentBounds::kNoLower && largest && largest->upper != ExponentBounds::kNoUpper)
    return kWouldFit(
        {{"types", types}, {"smallest", scale_value(smallest)}, {"largest", scale_value(largest)}, {"judged", judged}});
  return {};
}

}  // namespace ulpscope::findings
