#include <algorithm>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kChangedOnce{"recording.memory_changed", "{event}."};
constexpr Template kChangedOnceOnRank{"recording.memory_changed.on_rank", "On rank {rank}, {event}."};
constexpr Template kChangedTimes{"recording.memory_changed.times",
                                 "Weights or optimizer states changed {times} times between where they were written and where "
                                 "they were next read; first, {event}."};
constexpr Template kChangedTimesOnRank{"recording.memory_changed.times_on_rank",
                                       "Weights or optimizer states changed {times} times between where they were written and "
                                       "where they were next read; first, on rank {rank}, {event}."};
constexpr Template kNoOpDidThis{"advice.no_op_did_this", "No recorded op did this."};
constexpr Template kRepeatForMemory{"advice.repeat_for_memory",
                                    "Repeat the run: what changes again at the same place comes from a program, one that writes "
                                    "there without recording it or past the end of another tensor, or has two tensors in the "
                                    "same memory."};
constexpr Template kOneBitOnce{"advice.one_bit_once",
                               "One bit of one element that changes only once speaks for the machine's memory."};

// `event`: the first of `times` changes.
Sentence changes_title(const EventRow& event, size_t times, bool has_ranks) {
  const Name words{NameKind::event, event.text};
  const Value rank = ordinal(event.rank);
  if (times == 1) return has_ranks ? kChangedOnceOnRank({{"rank", rank}, {"event", words}}) : kChangedOnce({{"event", words}});
  return has_ranks ? kChangedTimesOnRank({{"times", times}, {"rank", rank}, {"event", words}})
                   : kChangedTimes({{"times", times}, {"event", words}});
}

void find_memory_changed(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  std::vector<const EventRow*> changes;
  for (const EventRow& event : context.trace.events())
    if (event.kind == EventKind::memory_changed && context.options.asks_for(event.step)) changes.push_back(&event);
  if (changes.empty()) return;
  // Of several ranks they come rank by rank.
  std::stable_sort(changes.begin(), changes.end(), [](const EventRow* a, const EventRow* b) { return a->step < b->step; });
  std::vector<Evidence> evidence;
  Extent extent;
  for (const EventRow* const change : changes) {
    const EventRow& event = *change;
    if (event.tensor >= 0) extent.tensors.push_back(static_cast<uint32_t>(event.tensor));
    keep_first(extent.first_step, std::optional(event.count));  // where it was written: what was read came from there
    if (evidence.size() == kMostEvidence) continue;
    RowKey key = event.tensor >= 0 ? facts.selection.key(static_cast<uint32_t>(event.tensor), event.step, event.rank)
                                   : facts.selection.key_of_step(event.step, event.rank);
    evidence.push_back({std::move(key), {{"written_in_step", count_cell(event.count), Unit::none}}});
    if (change != changes.front()) evidence.back().values.push_back({"text", event.text});  // of the first the title says it
  }
  found.add(Severity::error, changes_title(*changes.front(), changes.size(), context.trace.ranks().size() > 1), std::move(evidence),
            Sentences{kNoOpDidThis(), kRepeatForMemory(), kOneBitOnce()}, std::move(extent));
}

}  // namespace

extern constinit const FindingRule recording_memory_changed{
    .code = "recording.memory_changed",
    .part = Part::recording,
    .raised = "A weight or an optimizer state had another fingerprint where it was read than where it was written.",
    .meaning = "Something that no recorded op did changed the memory: a foreign write, an alias, or a bit that flipped.",
    .help = "Repeat the run: what changes again at the same place comes from a program, what changes once speaks for the memory.",
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow", "model.dead_output", "updates.lost"},
    .shown_by = "experiments/failures/bit_flipped_in_a_weight.toml",
    .find = find_memory_changed,
};

}  // namespace ulpscope::findings
