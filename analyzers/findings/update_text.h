// What findings on updates that were rounded away share.
#pragma once

#include <functional>
#include <span>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"

namespace ulpscope::findings {

// The share of a parameter's nonzero updates that may be rounded away before that is a finding.
inline constexpr double kLostLimit = 0.5;

// An op between the backward pass and the update clips gradients, or takes the norm by which PyTorch does.
bool clips_gradients(const RunFacts& facts);

// A vector that a normalization or a product multiplies values by, all of whose updates were rounded away.
bool is_stuck_gain(const RunFacts& facts, const UpdateJudgement::Weight& weight);

// Of the weights with that rounding, those that lost more than the limit of their nonzero updates. Nothing where no update was
// applied at all, which is said already. `title`: what became of them.
void tell_lost_updates(const RunFacts& facts, SmallUpdates rounding, double limit, Severity severity,
                       const std::function<Sentences(std::span<const UpdateJudgement::Lost>)>& title, const Advice& advice,
                       Findings& found);

// What rounds updates stochastically, "arithmetic.ops of the update, with optimizer.math = "fp32"": a phrase, or nothing. The
// change is noted in `advice`.
Sentence stochastic_rounding(const SettingNames& settings, Advice& advice);

bool uses_sgd(const RunFacts& facts);

// A bound from below with three digits.
double floored(double ratio);
// How many times clipping made gradients shorter, at least: three digits.
Value shortened_by(const Clipping& clipping);
// A phrase that begins a sentence: "Clip to a larger norm (clipping.norm, now 1e-05)", of what the run clips by.
Advice clip_less(const RunFacts& facts);

}  // namespace ulpscope::findings
