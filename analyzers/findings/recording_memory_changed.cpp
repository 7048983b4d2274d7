#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

void find_memory_changed(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  std::vector<const EventRow*> changes;
  for (const EventRow& event : context.trace.events())
    if (event.kind == EventKind::memory_changed && context.options.asks_for(event.step)) changes.push_back(&event);
  // Of several ranks they come rank by rank.
  std::stable_sort(changes.begin(), changes.end(), [](const EventRow* a, const EventRow* b) { return a->step < b->step; });
  const bool has_ranks = context.trace.ranks().size() > 1;
  uint64_t times = 0;
  std::string first;
  std::vector<Evidence> evidence;
  Extent extent;
  for (const EventRow* const change : changes) {
    const EventRow& event = *change;
    if (event.tensor >= 0) extent.tensors.push_back(static_cast<uint32_t>(event.tensor));
    keep_first(extent.first_step, std::optional(event.count));  // where it was written: what was read came from there
    if (times++ == 0) first = (has_ranks ? fmt::format("on rank {}, ", event.rank) : "") + event.text + '.';
    if (evidence.size() == kMostEvidence) continue;
    RowKey key = event.tensor >= 0 ? facts.selection.key(static_cast<uint32_t>(event.tensor), event.step, event.rank)
                                   : facts.selection.key_of_step(event.step, event.rank);
    evidence.push_back({std::move(key), {{"written_in_step", count_cell(event.count), Unit::none}}});
    if (times > 1) evidence.back().values.push_back({"text", event.text});  // of the first the title says it
  }
  if (times == 0) return;
  if (times == 1 && has_ranks) first.front() = 'O';
  found.add(Severity::error,
            times == 1 ? first
                       : fmt::format("Weights or optimizer states changed {} times between where they were written and where they "
                                     "were next read; first, {}",
                                     times, first),
            std::move(evidence),
            "No recorded op did this. Repeat the run: what changes again at the same place comes from a program, one that writes "
            "there without recording it or past the end of another tensor, or has two tensors in the same memory. One bit of one "
            "element that changes only once speaks for the machine's memory.",
            std::move(extent));
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
