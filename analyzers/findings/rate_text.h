// What advice on the length of updates names: the learning rate of the weight in question, the schedule that took it there, and
// what else multiplies updates.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// "optimizer.learning_rate, now 0.1": where several groups of parameters have one each, that of the weight's, as far as the
// rates tell groups apart; without a weight, that of the weight whose updates were longest beside it. Nothing where that is not
// known.
SettingMention learning_rate_now(const RunFacts& facts, std::optional<uint32_t> weight = {});

// Advice on updates that were too long in `step`, as a phrase that begins a sentence. `weight`: one that they were too
// long for, where that is known.
Advice shorten_updates(const RunFacts& facts, std::optional<uint32_t> weight, uint64_t step);

// Why updates were as short as they were, where a schedule, a factor of the loss or weight decay is the reason: what it did and how
// to mend it; or nothing.
Advice why_updates_are_short(const RunFacts& facts);

// Says so where weight decay takes more than 1% of each weight in a step; or nothing.
Advice why_weights_shrink(const RunFacts& facts);

// A phrase: ", or lower the loss factor (loss.factor, now 1e+06)", where it has one above 1 that makes gradients larger; or
// nothing. The change is noted in `advice`.
Sentence or_lower_loss_factor(const RunFacts& facts, Advice& advice);

}  // namespace findings
}  // namespace ulpscope
