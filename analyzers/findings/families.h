// Codes that findings of one family come of several others.
#pragma once

#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

// What a value leads to that is far too large.
inline constexpr Codes kOfHugeValue = {"range.nonfinite",
                                       "range.values_overflow",
                                       "range.gradients_overflow",
                                       "range.clipping_hides_infinity",
                                       "range.gradients_vanish",
                                       "run.loss_nonfinite",
                                       "run.stopped",
                                       "run.no_better_than_guessing",
                                       "run.loss_rose",
                                       "run.loss_stayed",
                                       "run.test_loss_nonfinite",
                                       "scale.collapse",
                                       "scale.no_step_taken",
                                       "scale.thrashing",
                                       "scale.backoffs",
                                       "scale.below_100",
                                       "scale.below_1000",
                                       "updates.none_applied"};
// What a value that is NaN or infinite leads to.
inline constexpr Codes kOfNonfinite = kOfHugeValue + Codes{"range.quantization_*"};

// What a gradient leads to of which roundings made zero what was not.
inline constexpr Codes kOfLostGradients = {"range.gradients_flushed",
                                           "range.inputs_flushed",
                                           "scale.missing",
                                           "scale.none",
                                           "scale.under_scaled",
                                           "scale.below_100",
                                           "scale.below_1000",
                                           "scale.fit_*",
                                           "updates.none_applied",
                                           "updates.lost",
                                           "run.no_better_than_guessing",
                                           "run.loss_rose",
                                           "run.loss_stayed"};

}  // namespace ulpscope
