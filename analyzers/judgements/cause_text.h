// What is said of the causes of NaN and Inf: the arithmetic that shows each, and what helps.
#pragma once

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// "Element [9, 15]: ", of an element that was captured; what it is called within a sentence: "element [9, 15]".
Sentence at_element(const CaptureRow& element);
Sentence element_name(const CaptureRow& element);
// "exceeds 65,504 (FP16 max)", of a value that does; of a negative one "is below -65,504 (FP16 min)".
Sentence too_large(double value, const FloatFormat& format);

namespace cause_words {

// Memory, and what was there before the first op.
inline constexpr Template kMemoryChanged{"cause.memory_changed",
                                         "`{parameter}` no longer held what was last written to it: its memory was changed."};
inline constexpr Template kOperandChanged{
    "cause.operand_changed",
    "In {place} {element} was finite when written, and {value:special} when `{op}` read it: its memory was changed in between."};
inline constexpr Template kFindWriter{
    "advice.find_writer", "Find what writes to that memory: an in-place op on a view, a buffer that is reused, or a race."};
inline constexpr Template kCheckStart{"advice.check_start", "Check how it was initialized or loaded."};
inline constexpr Template kCameUnrecorded{"cause.came_unrecorded",
                                          "It came in a step that was not recorded: one from step {first} to step {last}."};
inline constexpr Template kMayBeOlder{"cause.may_be_older",
                                      "It reads what was written in step {step}, which was not recorded: it may have come before."};
inline constexpr Template kRecordAllSteps{"advice.record_all_steps", "Record every step from step {step} on to see what made it."};

// Calls that cannot be looked into.
inline constexpr Template kNan{"cause.nan", "NaN"};
inline constexpr Template kInf{"cause.inf", "Inf"};
inline constexpr Template kNanAndInf{"cause.nan_and_inf", "NaN and Inf"};
inline constexpr Template kInModule{"cause.in_module", "module {module}"};
inline constexpr Template kCameOut{"cause.came_out", "{held} came out of `{op}`{where:brackets}, which cannot be looked into."};
inline constexpr Template kFiniteInputs{"cause.opaque_finite_inputs", "The inputs that it was given were finite."};
inline constexpr Template kUnknownInputs{"cause.opaque_unknown_inputs", "Not all of its inputs were recorded."};
inline constexpr Template kCheckKernel{"advice.check_kernel",
                                       "Check the kernel behind `{op}`: it made {held} of finite inputs. With recorded ops in its "
                                       "place, the report names the one that does."};
inline constexpr Template kCheckKernelAndInputs{"advice.check_kernel_and_inputs",
                                                "Check the kernel behind `{op}`, and what it reads. With recorded ops in its "
                                                "place, the report names the one that makes {held}."};
inline constexpr Template kObserveInside{"advice.observe_inside",
                                         "`{observe}` records a tensor inside of it, and `{eager}` runs compiled code op by op."};

// Optimizers.
inline constexpr Template kEpsilonFlushed{
    "cause.epsilon_flushed",
    "Adam divides by zero at step {step}: in {format} eps = {eps:g} is 0, and (1 - beta2) g^2 is 0 for |g| up to "
    "2^{gradient:.2g}."};
inline constexpr Template kUpdateMath{"cause.update_math", "Each operation of the update is rounded to {format}{math:brackets}."};
inline constexpr Template kMastersOrFp32Update{
    "advice.masters_or_fp32_update", "Use FP32 master weights{masters:brackets}, or compute the update in FP32{math:brackets}."};
inline constexpr Template kMomentsUnderflow{
    "advice.moments_underflow",
    "The latter still stores second moments in {format}: where one underflows to 0, eps alone bounds the update."};
inline constexpr Template kZeroMoments{
    "cause.denominator_underflow", "Adam divides by zero at step {step}: eps = 0, and {moments} of {count} second moments are 0."};
inline constexpr Template kWhyZeroMoments{"cause.why_zero_moments",
                                          "A second moment stays 0 while its gradients are 0, or underflow when squared."};
inline constexpr Template kNeedsEpsilon{"advice.needs_epsilon", "Set Adam's eps above 0{epsilon:brackets}; 1e-8 is its default."};
inline constexpr Template kZeroState{
    "cause.zero_state", "{optimizer} divides by zero at step {step}: eps = 0, and {zeros} of {count} elements of `{state}` are 0."};
inline constexpr Template kSetEpsilon{"advice.set_epsilon", "Set eps above 0{epsilon:brackets}."};
inline constexpr Template kSecondMoment{"cause.second_moment_overflow",
                                        "{at}(1 - beta2) g^2 = {square:.6g} {beyond}; the gradient g is {gradient:.6g}."};
inline constexpr Template kClipBeforeMoments{
    "advice.clip_before_moments",
    "Clip the gradients, or leave such a step out: with Inf in a second moment, weight decay alone moves that weight."};
inline constexpr Template kMastersHaveMoments{"advice.masters_have_moments",
                                              "Use FP32 master weights{masters:brackets}: their second moments are FP32 too."};

inline constexpr Template kRateIsSpecial{"cause.rate_is_special", "The learning rate of that update is {rate:special}."};
inline constexpr Template kRateWas{"cause.rate_was", "The last finite one before was {before:g}."};
inline constexpr Template kCheckSchedule{"advice.check_schedule", "Check how the schedule of the learning rate computes it."};

// Losses.
inline constexpr Template kNoTarget{"cause.no_target",
                                    "All logits were finite, and the loss ignored every target of the batch: its mean is 0 / 0."};
inline constexpr Template kLeaveTargets{"advice.leave_targets",
                                        "Leave at least one target per batch that is not ignored{setting:brackets}."};
inline constexpr Template kNoProbability{
    "cause.no_probability",
    "The model's output is finite, but no probability: binary_cross_entropy takes log(p) and log(1 - p), NaN below 0 and above 1."};
inline constexpr Template kEndWithSigmoid{"advice.end_with_sigmoid",
                                          "End the model with a sigmoid, or use bce_with_logits{setting:brackets}."};

// Sums.
inline constexpr Template kFirstTerm{"cause.first_term", "{at}the first of its {terms:count term} is NaN or Inf already."};
inline constexpr Template kTermsUpTo{
    "cause.terms_up_to",
    "{at}after {before} of {terms:count term} the sum is {partial:.6g}, and the next term makes it NaN or Inf."};
inline constexpr Template kWholeSum{"cause.whole_sum", "{at}the sum of {terms:count term}, {partial:.6g}, {beyond}."};
inline constexpr Template kScaledSum{
    "cause.scaled_sum",
    "{at}the sum of {terms:count term} is {partial:.6g}. Times the inverse scales {first:.6g} and {second:.6g} it is {scaled:.6g}, "
    "which {beyond}."};

// Norms and softmax.
inline constexpr Template kMaskedRow{"cause.masked_row",
                                     "{at}all {values} values of its softmax row are masked, and exp(-Inf - -Inf) is NaN."};
inline constexpr Template kLeaveOneValue{"advice.leave_one_value",
                                         "Leave at least one value of each row unmasked, or mask with a large finite number."};
inline constexpr Template kRunningVariance{
    "cause.running_variance",
    "{at}{values} values from {smallest:.6g} to {largest:.6g} have a variance of at least {variance:.6g}. Times the momentum, "
    "{momentum:g}, it is {added:.6g}, which {beyond}."};
inline constexpr Template kSmallerInputs{"advice.smaller_inputs_of_norm",
                                         "Scale down the input of the norm: its square has to fit."};
inline constexpr Template kNormOfOne{
    "cause.norm_of_one",
    "{at}it is the only value of its group, {value:.6g}. The variance is 0, and so is eps: the norm divides by 0."};
inline constexpr Template kRmsOfOne{
    "cause.rms_of_one",
    "{at}it is the only value of its group, {value:.6g}. The mean square is 0, and so is eps: the norm divides by 0."};
inline constexpr Template kNormOfEqual{
    "cause.norm_of_equal",
    "{at}all {values} values of its group are {value:.6g}. Their variance is 0, and so is eps: the norm divides by 0."};
inline constexpr Template kRmsOfEqual{
    "cause.rms_of_equal",
    "{at}all {values} values of its group are {value:.6g}. Their mean square is 0, and so is eps: the norm divides by 0."};
inline constexpr Template kLargerEpsilon{"advice.larger_epsilon_of_norm",
                                         "Set eps of `{module}` above 0 (now {eps:g}); 1e-5 is usual."};

// Zeros that were none before a rounding.
inline constexpr Template kZeroBehind{
    "cause.zero_was_flushed",
    "The 0 is an underflow: before rounding, element {element} of {place} was {magnitude:.3g}, and {format} rounds anything up to "
    "{flushed} to 0."};
inline constexpr Template kZeroBehindAtMost{"cause.zero_was_flushed_at_most",
                                            "The 0 is an underflow: before rounding, element {element} of {place} was at most "
                                            "{magnitude:.3g}, and {format} rounds anything "
                                            "up to {flushed} to 0."};
inline constexpr Template kZeroUnderflowed{"cause.zero_underflowed",
                                           "The 0 is an underflow: for what `{op}` read, its exact result is not 0."};
inline constexpr Template kSumOfLogs{
    "advice.sum_of_logs", "Add up logs in place of taking the log of `{op}`: its factors' product is too small for the type."};
inline constexpr Template kLogsFromLogits{
    "advice.logs_from_logits",
    "Compute with logs, from what `{op}` reads: logsumexp for sums of exp, logsigmoid for the log of a sigmoid."};
inline constexpr Template kLogSoftmax{"advice.log_softmax", "Replace log(softmax(x)) by log_softmax(x)."};
inline constexpr Template kFp32Keeps{"advice.fp32_keeps", "{wide}, where this value is {magnitude:.3g}."};
inline constexpr Template kAddendFlushed{
    "cause.addend_flushed", "The {addend:g} added to prevent this is 0 in {format}, whose smallest positive number is {smallest}."};
inline constexpr Template kRaiseAddend{"advice.raise_addend",
                                       "Raise eps of `{module}` to at least {smallest} (now {addend:g}){wide}."};

// Functions outside their domains.
inline constexpr Template kKeepArgument{"advice.keep_argument",
                                        "Keep the argument of {function} above 0: clamp it, or add an eps."};
inline constexpr Template kKeepPositive{"advice.keep_positive",
                                        "Keep the argument of {function} at 0 or above: clamp it, or find what made it negative."};
inline constexpr Template kKeepLog1p{
    "advice.keep_log1p",
    "Keep the argument of log1p above -1: clamp it. Of a probability made by sigmoid, compute the log from its logit: "
    "log1p(-sigmoid(x)) is logsigmoid(-x)."};
inline constexpr Template kKeepWithinOne{"advice.keep_within_one",
                                         "Keep the argument of `{function}` between -1 and 1, a little inside: clamp it."};
inline constexpr Template kKeepAboveOne{"advice.keep_above_one", "Keep the argument of `{function}` above 1: clamp it."};
inline constexpr Template kKeepAboveZero{"advice.keep_above_zero",
                                         "Keep the argument of `{function}` above 0: clamp it, or add an eps."};
inline constexpr Template kBoundArgument{"advice.bound_argument", "Bound the argument of `{function}`, which grows as exp does."};
inline constexpr Template kKeepProbability{"advice.keep_probability",
                                           "Keep the argument of logit between 0 and 1: clamp it, or pass eps."};
inline constexpr Template kRaiseLogitEps{"advice.raise_logit_eps",
                                         "Raise eps of logit (now {eps:g}): in {format} 1 - eps may be 1."};
inline constexpr Template kKeepPowerReal{
    "advice.keep_power_real",
    "Keep the base of {function} at 0 or above: clamp it, or take its magnitude and put the sign back afterwards."};
inline constexpr Template kKeepBase{"advice.keep_base", "Keep the base of {function} away from 0: clamp it, or add an eps."};
inline constexpr Template kKeepDivisor{"advice.keep_divisor", "Keep the divisor away from 0: clamp it, or add an eps."};
inline constexpr Template kEpsTooSmall{"advice.eps_too_small", "In {format} an eps up to {flushed} is 0."};
inline constexpr Template kSubtractLargest{
    "advice.subtract_largest",
    "Before exp, subtract the largest of the values that are summed, as softmax does: the quotients are the same."};
inline constexpr Template kBoundExponent{"advice.bound_exponent",
                                         "Bound the argument of exp, so that exp and what is computed from it fit in {format}."};
inline constexpr Template kFiniteFactor{"advice.finite_factor",
                                        "Use a finite factor, such as {proposed:g} (now {factor:special})."};
inline constexpr Template kFactorInRange{
    "advice.factor_in_range",
    "Use a factor between -{largest} and {largest} ({format}'s range), such as {proposed:g} (now {factor:g})."};

// Arithmetic of one element.
inline constexpr Template kOperand{"cause.operand", "{value:.6g}"};
inline constexpr Template kNegativeOperand{"cause.negative_operand", "({value:.6g})"};
inline constexpr Template kSpecialOperand{"cause.special_operand", "{value:special}"};
inline constexpr Template kOperandReadAsZero{"cause.operand_read_as_zero", "{value:.6g} (read as 0)"};
inline constexpr Template kSumOf{"cause.sum_of", "{first} + {second}"};
inline constexpr Template kDifferenceOf{"cause.difference_of", "{first} - {second}"};
inline constexpr Template kProductOf{"cause.product_of", "{first} * {second}"};
inline constexpr Template kQuotientOf{"cause.quotient_of", "{first} / {second}"};
inline constexpr Template kFunctionOf{"cause.function_of", "{op}({operands:commas})"};
inline constexpr Template kOperation{"cause.operation", "{at}{expression} = {result:special}."};
inline constexpr Template kTooLarge{"cause.too_large", "{at}{expression} = {exact:.10g} {beyond}."};
inline constexpr Template kAboutTooLarge{"cause.about_too_large", "{at}{expression} is about {exact:.6g}, which {beyond}."};
inline constexpr Template kCastTooLarge{"cause.cast_too_large", "{at}{expression} {beyond}."};

// Infinities on purpose.
inline constexpr Template kPutsInfinity{"cause.puts_infinity", "It puts {value:special} in place of elements."};
inline constexpr Template kAddsLogarithms{"cause.adds_logarithms_of_masked",
                                          "It puts {value:special} in place of elements, and `{reader}` adds up the logarithms of "
                                          "all probabilities, which are -Inf of these."};
inline constexpr Template kLeaveOutOfSum{
    "advice.leave_out_of_sum",
    "Leave these elements out of that sum. The one of label smoothing is over all classes: set it to 0, or smooth over the classes "
    "that are not masked."};
inline constexpr Template kZeroTimesInfinity{"cause.zero_times_infinity_by_rows",
                                             "Its inputs held Inf but no NaN, and it holds NaN: 0 * Inf."};
inline constexpr Template kInfinityMinusInfinity{"cause.infinity_minus_infinity_by_rows",
                                                 "Its inputs held Inf but no NaN, and it holds NaN: Inf - Inf."};
inline constexpr Template kNanOnPurpose{
    "advice.nan_on_purpose",
    "The code there gives NaN on purpose, as logdet does of a negative determinant: check its condition, and what that reads."};
inline constexpr Template kFillFinite{"advice.fill_finite", "Fill in a large finite number, or select the other elements instead."};

// By rows alone.
inline constexpr Template kMaskedRows{
    "cause.masked_rows",
    "Its input held -Inf, but neither NaN nor +Inf: all values of a row are masked, and exp(-Inf - -Inf) is NaN."};
inline constexpr Template kNoWeightOfTargets{
    "cause.no_weight_of_targets",
    "Its inputs were finite: it ignored every target of the batch, or their class weights add up to 0. Its mean is 0 / 0."};
inline constexpr Template kKeepBatchesWithTargets{
    "advice.keep_batches_with_targets",
    "Leave out batches without a target that counts{setting:brackets}, or divide the sum of the losses by at least 1."};
inline constexpr Template kRunningStatistic{
    "cause.running_statistic",
    "The norm's input was finite, and the statistic holds Inf but no NaN: it exceeded {largest} ({format} max)."};
inline constexpr Template kWideStatistics{"advice.wide_statistics",
                                          "Keep the running statistics of `{module}` in FP32, or scale down its input."};
inline constexpr Template kLargestBefore{"cause.largest_before_rounding",
                                         "The largest value before rounding, {value:.6g}, {beyond}."};
inline constexpr Template kExceeded{
    "cause.exceeded", "Its inputs were finite, and it holds Inf but no NaN: a result exceeded {largest} ({format} max)."};
inline constexpr Template kSumExceeded{
    "cause.sum_exceeded",
    "Its inputs were finite, and it holds Inf but no NaN: a sum, or a part of it, exceeded {largest} ({format} max)."};
inline constexpr Template kLogsOfZero{"cause.logs_of_zero", "Its inputs were finite, and it holds -Inf but no NaN: log(0)."};
inline constexpr Template kLogsOfNegative{"cause.logs_of_negative",
                                          "Its inputs were finite, and it holds NaN: the log of a negative number."};
inline constexpr Template kRootsOfNegative{"cause.roots_of_negative",
                                           "Its inputs were finite, and it holds NaN: the square root of a negative number."};
inline constexpr Template kRootsOfZero{"cause.roots_of_zero", "Its inputs were finite, and it holds Inf but no NaN: 1 / sqrt(0)."};
inline constexpr Template kExponentials{
    "cause.exponentials", "Its inputs were finite, and it holds Inf but no NaN: exp(x) exceeded {largest} ({format} max)."};
inline constexpr Template kMeanOfNothing{"cause.mean_of_nothing", "It is the mean of no elements, 0 / 0."};
inline constexpr Template kDivideSum{"advice.divide_sum",
                                     "Leave such a batch out, or divide the sum by the number of elements where that is above 0."};
inline constexpr Template kZerosOverZero{"cause.zeros_over_zero", "Its inputs were finite, and it holds NaN: 0 / 0."};
inline constexpr Template kDividedByIntegerZero{"cause.divided_by_integer_zero",
                                                "Its inputs were finite, and it divides by integers: a number / 0."};
inline constexpr Template kNumberIsSpecial{"cause.number_is_special", "The number that it takes from the program is {value}."};
inline constexpr Template kCheckNumber{"advice.check_number",
                                       "Check where the program gets that number, as a schedule of a weight."};
inline constexpr Template kTwoMasks{"cause.two_masks",
                                    "Both operands are the least number of {format}, as masks are: their sum is beyond it."};
inline constexpr Template kJoinMasks{"advice.join_masks",
                                     "Join the masks before they are added (a logical or), or fill with half of that number."};
inline constexpr Template kDividedByZero{
    "cause.divided_by_zero",
    "Its inputs were finite, and no quotient of the largest numerator and the smallest nonzero denominator overflows {format}: it "
    "divided by 0."};

}  // namespace cause_words
}  // namespace ulpscope
