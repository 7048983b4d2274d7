#include <algorithm>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/recording_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kMemoryChanged{"recording.memory_changed",
                                  "Memory changed{rank}: {tensor} differs between step {written}, which wrote it, and step {read}, "
                                  "which read it."};
constexpr Template kOnRank{"recording.memory_changed.on_rank", " on rank {rank}"};
constexpr Template kNamedTensor{"recording.memory_changed.tensor", "{tensor}"};
constexpr Template kSomeTensor{"recording.memory_changed.some_tensor", "a weight or optimizer state"};
constexpr Template kBitPatterns{"recording.memory_changed.bits", "The sum of its bit patterns {change}."};
constexpr Template kFirstOfChanges{"recording.memory_changed.times", "It is the first of {times} changes."};
constexpr Template kNoOpDidThis{"advice.no_op_did_this", "No recorded op wrote it in between."};
constexpr Template kRepeatForMemory{"advice.repeat_for_memory",
                                    "Repeat the run: a change at the same place comes from a program (an unrecorded write, a write "
                                    "past the end of another tensor, or two tensors in the same memory)."};
constexpr Template kOneBitOnce{"advice.one_bit_once", "A single bit that changes only once points to faulty memory."};

constexpr std::string_view kOfBits = "the sum of its bit patterns ";

// `event`: the first of `times` changes.
Sentences changes_title(const RunFacts& facts, const EventRow& event, size_t times) {
  Value rank;
  if (facts.context.trace.ranks().size() > 1) rank = kOnRank({{"rank", ordinal(event.rank)}});
  const Sentence tensor = event.tensor < 0
                              ? kSomeTensor()
                              : kNamedTensor({{"tensor", tensor_place(facts.selection, static_cast<uint32_t>(event.tensor))}});
  Sentences title =
      kMemoryChanged({{"rank", rank}, {"tensor", tensor}, {"written", ordinal(event.count)}, {"read", ordinal(event.step)}});
  // The recorder says it behind all that is told here already.
  if (const size_t bits = event.text.rfind(kOfBits); bits != std::string::npos)
    title += kBitPatterns({{"change", event_name(event.text.substr(bits + kOfBits.size()))}});
  if (times > 1) title += kFirstOfChanges({{"times", times}});
  return title + kNoOpDidThis();
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
  found.add(Severity::error, changes_title(facts, *changes.front(), changes.size()), std::move(evidence),
            Sentences{kRepeatForMemory(), kOneBitOnce()}, std::move(extent));
}

}  // namespace

extern constinit const FindingRule recording_memory_changed{
    .code = "recording.memory_changed",
    .part = Part::recording,
    .raised = "A weight or an optimizer state had another fingerprint where it was read than where it was written.",
    .meaning = "Something that no recorded op did changed the memory: a foreign write, an alias, or a flipped bit.",
    .help = "Repeat the run: a change at the same place comes from a program, one that happens only once points to faulty memory.",
    .explains = kOfNonfinite + Codes{"run.diverged", "model.values_grow", "model.dead_output", "updates.lost"},
    .shown_by = "experiments/failures/bit_flipped_in_a_weight.toml",
    .find = find_memory_changed,
};

}  // namespace ulpscope::findings
