// The names of measures that readers know, as they stand in the table `measures`.
#pragma once

#include <string_view>

namespace ulpscope {

// Both are measured at an output in 16 bits whose op was computed again, from the same inputs in a wider type, and are Euclidean
// norms over that of the wide result: of the stored values less the wide ones, and of the wide ones rounded once to the output's
// type less themselves.
inline constexpr std::string_view kInjectedError = "injected_error", kRoundingFloor = "rounding_floor";

// These are of samples of elements, in steps in which they were looked at (recorder/value_loss.h). All but the last of each kind
// are shares.
//
// An addition or a subtraction of two tensors loses of the one with the smaller sum of magnitudes, b beside a, the share of the
// sum of |b| that the sum of sign(b) (stored - a) lacks, in FP16 and BF16; and that sum over the one of |a|.
inline constexpr std::string_view kAddendLost = "addend_lost", kAddendSize = "addend_size";
// Results of an addition or a subtraction of nonzero operands that are not 0, and 4 units in the last place of an operand at most;
// and the largest magnitude among them.
inline constexpr std::string_view kCancelled = "cancelled", kCancelledSize = "cancelled_size";
inline constexpr double kCancelledUnits = 4;
// Whole numbers that the cast to the output's type changed; and of the numbers there, each once and in order, pairs that are equal
// behind it.
inline constexpr std::string_view kWholeNumbersRounded = "whole_numbers_rounded", kNeighboursMerged = "neighbours_merged";
// Places in a sample of the data at which the deviation of a cast's roundings is half of that of the samples, or more; and one such
// place, counted in the sample's elements from 0.
inline constexpr std::string_view kFeaturesMerged = "features_merged", kMergedFeature = "merged_feature";

}  // namespace ulpscope
