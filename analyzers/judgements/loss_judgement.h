// What the losses of a run say of its steps: whether they rose, when, and by how much. Of several ranks, those of the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

class RunFacts;
struct StepTotals;

// Losses that are far above the first one among others that are near zero, as those of a classifier that is sure of whatever it
// says: a median does not tell of them.
struct ScatteredLosses {
  uint64_t above = 0, steps = 0;
  double first = 0, highest = 0;
  uint64_t step = 0;        // of the highest
  bool ends_early = false;  // something was NaN or infinite behind them

  Sentence text() const;  // a phrase
};

// A change of the loss, and where its end was taken.
struct LossChange {
  uint64_t first_step;
  double first, last;
  size_t count;  // losses that `last` is the median of
  enum class Until : uint8_t { end, broke, nonfinite } until;
  uint64_t until_step;                            // from where on the losses are NaN or Inf, or where something first was
  std::optional<uint64_t> step = {};              // of `last`, where that is one loss on the way
  std::optional<ScatteredLosses> scattered = {};  // where they are what is to be told

  Sentence text() const;  // a phrase: "the loss rose from ... to ..."
};

struct LossJudgement {
  LossChange change;
  bool is_long;            // enough losses for what lies between the first and the last ones to be no chance
  bool no_better;          // the last ones are not below the first one
  bool comes_down;         // of a run too short for the rest: the last ones are below half of the highest, and it may yet train
  bool grew;               // to the end of a run in which nothing was NaN or infinite
  bool grew_to_nonfinite;  // until something was
  bool peaked;             // before activations that died hid the batch from them
  std::optional<ScatteredLosses> scattered;

  bool rose() const { return grew || grew_to_nonfinite || peaked || scattered; }
};

// The first step, of all that are asked for or of those that were taken, in which something was NaN or infinite: in a skipped one
// that is how a scaler finds its level. UINT64_MAX: none.
enum class WhichSteps : uint8_t { all, taken };
// A step's first tensor with NaN or infinity was a mask, so that the event tells of no fault.
bool is_of_mask(const RunFacts& facts, const EventRow& event);
uint64_t first_nonfinite_step(const RunFacts& facts, WhichSteps steps);

// `first_nonfinite`: the first step that was taken with something NaN or infinite in it; `blind`: from which on the loss saw
// nothing of the batch. UINT64_MAX: none. Nothing where the first loss is not known to be finite, or the last ones are not known.
std::optional<LossJudgement> judge_losses(const RunFacts& facts, uint64_t first_nonfinite, uint64_t blind);

// Of a run too short for other judgements: each loss of its later half is above its first one, and of a classifier above guessing.
bool stays_above_start(const RunFacts& facts);

// The run ended no better than it began, or with losses that are no numbers.
bool ended_no_better(const RunFacts& facts);

// Losses that were NaN or infinite are an error where the run ended so, and a warning where they wasted many steps or came in one
// that was taken.
Severity harm_of_nonfinite_losses(const StepTotals& steps, bool broke);

// Whether weights are updated before the last backward pass of a step, as where a generator and a discriminator take turns: the sum
// of losses that work against each other says nothing of what was learned.
bool optimizes_in_turns(const RunFacts& facts);

// The known losses of the first rank, in order.
std::vector<StepLoss> losses_of(const RunFacts& facts, StepRange steps);

}  // namespace ulpscope
