#include <algorithm>
#include <map>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kStepsMissing{"recording.missing_steps",
                                 "{steps:count step} of the run {steps:either is|are} in no trace (first: step {first})."};
constexpr Template kEarlierWasKilled{"advice.earlier_was_killed",
                                     "The earlier program was killed, or its recording ended, before they were written."};
constexpr Template kMissingLeftOut{"advice.missing_left_out", "The report is on the other steps."};

void find_missing_steps(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  const std::vector<TracePart>& parts = context.parts;
  uint64_t missing = 0;
  std::vector<Evidence> evidence;
  // By rank, the first step that no part so far has; what a first part that was itself resumed came after is no part of the run as
  // read.
  std::map<int, uint64_t> next;
  std::map<int, size_t> before;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [known, is_first] =
        next.try_emplace(parts[i].run.rank, static_cast<uint64_t>(std::max<int64_t>(0, parts[i].run.parent_step)));
    const StepRange asked = context.options.steps;
    const uint64_t first = std::max(known->second, asked.first), last = std::min(parts[i].steps.first, asked.last);
    if (!is_first && first < last) {
      missing += last - first;
      evidence.push_back({key_of_step(context.trace, first),
                          {{"missing_steps", count_cell(last - first), Unit::count},
                           {"before", parts[i].path},
                           {"after", parts[before[known->first]].path}}});
    }
    const StepSet of_part = facts.step_facts.steps_of(parts[i]);
    if (!of_part.empty()) known->second = of_part.last() + 1;
    before[known->first] = i;
  }
  if (missing == 0) return;
  const uint64_t first = *evidence.front().key.step;
  found.add(Severity::warning, kStepsMissing({{"steps", missing}, {"first", ordinal(first)}}), std::move(evidence),
            Sentences{kEarlierWasKilled(), kMissingLeftOut()});
}

}  // namespace

extern constinit const FindingRule recording_missing_steps{
    .code = "recording.missing_steps",
    .part = Part::recording,
    .raised = "The traces of a resumed run leave a gap of steps between them.",
    .meaning = "These steps are not in the report.",
    .is_about_run = false,
    .find = find_missing_steps,
};

}  // namespace ulpscope::findings
