// Sums of many terms: each block of the grid adds a part, and the parts are added after it, in the order of reduction_order.h.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/indices.h"
#include "ulpscope/kernels/device/sums.h"
#include "ulpscope/kernels/lanes.h"

namespace ulpscope::device {

// Terms of a part: a power of two of blocks of terms, so that parts are whole branches of the tree.
inline constexpr int64_t kPartOfSum = 16 * kReductionBlock;

// terms.at<Block>(i) for i < n.
template <class Terms>
struct SumParts {
  Terms terms;
  int64_t n;
  float* parts;  // one for each block of the grid

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t begin = block.block() * kPartOfSum, left = n - begin;
    const float sum =
        sum_of<float>(block, left < kPartOfSum ? left : kPartOfSum, [&](int64_t i) { return terms.template at<Block>(begin + i); });
    if (block.thread() == 0) parts[block.block()] = sum;
  }
};

// The mean of terms, from their parts: over all of them, or over the indices that are not ignored.
struct MeanOfParts {
  const float* parts;
  int64_t count, terms;
  Indices over;  // facts is nullptr: all
  float* value;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const float total = sum_of_parts(block, parts, count);
    if (block.thread() == 0) *value = total / (over.facts == nullptr ? static_cast<float>(terms) : over.counted());
  }
};

// Squares of the elements of several tensors, in FP64.
struct SquaresOfTensors {
  static constexpr int kMost = 8;
  Input inputs[kMost];
  int64_t sizes[kMost];
  int64_t first_parts[kMost + 1];  // whose parts follow each other; tensors that are not there have none
  double* parts;
  double* sums;  // of each tensor
};

struct SquareParts {
  SquaresOfTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    int tensor = 0;
    while (block.block() >= tensors.first_parts[tensor + 1]) ++tensor;
    const int64_t begin = (block.block() - tensors.first_parts[tensor]) * kPartOfSum, left = tensors.sizes[tensor] - begin;
    const double sum = sum_of<double>(block, left < kPartOfSum ? left : kPartOfSum, [&](int64_t i) {
      const double value = read<Block>(tensors.inputs[tensor], begin + i);
      return value * value;
    });
    if (block.thread() == 0) tensors.parts[block.block()] = sum;
  }
};

// A block for each tensor.
struct SquareSums {
  SquaresOfTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t begin = tensors.first_parts[block.block()];
    const double sum = sum_of_parts(block, tensors.parts + begin, tensors.first_parts[block.block() + 1] - begin);
    if (block.thread() == 0) tensors.sums[block.block()] = sum;
  }
};

// One thread, in order.
struct NormOfSums {
  const double* sums;
  int64_t count;
  float* value;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    if (block.thread() != 0) return;
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += sums[i];
    *value = static_cast<float>(lanes::square_root(total));
  }
};

}  // namespace ulpscope::device
