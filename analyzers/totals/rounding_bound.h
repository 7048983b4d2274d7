// How far apart two results of an op may lie that was computed twice from the same inputs, rounding alone considered: of sums that
// are formed in FP32, in any order, with fused multiplications or without (docs/numerics.md, "Bounds"). Algorithms that add other
// terms, as Winograd's convolution or a transform's, are not meant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// The norms that a row tells of a tensor's values as a whole.
struct TensorNorms {
  double elements = 0;
  double norm = 0;     // Euclidean
  double most = 0;     // of the norm as it is stored, where that is after the rounding that the statistics are before
  double sum = 0;      // of the elements
  double largest = 0;  // magnitude

  // Nothing where the statistics are not known, or some values are not finite.
  static std::optional<TensorNorms> of(const TensorRow& row, DType dtype);
  // The Euclidean norm of the difference is at least this: norms, sums and largest magnitudes cannot lie farther apart.
  double least_distance(const TensorNorms& other) const;
};

// A bound on the Euclidean norm of the difference of two results that are stored as `tensor` says. `inputs`: in the op's order,
// nothing where one is not known. Nothing for ops of which no bound is known from norms alone, for those with factors or rounding
// modes among their attributes, for other roundings than to nearest with subnormals, and for FP64 and 8 bits.
std::optional<double> rounding_bound(const OpInfo& op, const TensorInfo& tensor, const TensorNorms& result,
                                     std::span<const std::optional<TensorNorms>> inputs);

}  // namespace ulpscope
