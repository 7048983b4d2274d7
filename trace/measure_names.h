// The names of measures that readers know, as they stand in the table `measures`.
#pragma once

#include <string_view>

namespace ulpscope {

// Both are measured at an output in 16 bits whose op was computed again, from the same inputs in a wider type, and are Euclidean
// norms over that of the wide result: of the stored values less the wide ones, and of the wide ones rounded once to the output's
// type less themselves.
inline constexpr std::string_view kInjectedError = "injected_error", kRoundingFloor = "rounding_floor";

// All are shares of elements that were looked at, but the last, in a step in which they were (recorder/value_loss.h).
//
// What an addition or a subtraction of two tensors made of the one with the smaller sum of magnitudes, b beside a: the share of the
// sum of |b| that the sum of sign(b) (stored - a) lacks. In FP16 and BF16.
inline constexpr std::string_view kAddendLost = "addend_lost";
// Results of an addition or a subtraction of nonzero operands that are 4 units in the last place of an operand at most.
inline constexpr std::string_view kCancelled = "cancelled";
inline constexpr double kCancelledUnits = 4;
// Whole numbers that the cast to the output's type changed, and pairs of neighbours that differ before it and not behind it.
inline constexpr std::string_view kWholeNumbersRounded = "whole_numbers_rounded", kNeighboursMerged = "neighbours_merged";
// Places in a sample of the data at which half of the pairs of samples that differ, or more, are equal behind a cast; and the first
// such place, counted in the sample's elements from 0.
inline constexpr std::string_view kFeaturesMerged = "features_merged", kMergedFeature = "merged_feature";

}  // namespace ulpscope
