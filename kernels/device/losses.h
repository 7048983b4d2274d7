// Losses over the classes of rows, means of elementwise terms, and how many rows are right.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/indices.h"
#include "ulpscope/kernels/device/reductions.h"
#include "ulpscope/kernels/device/rows.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::device {

struct CrossEntropyRows {
  RowInput logits;
  int64_t rows, classes;
  Indices targets;
  float smoothing;
  float *sums, *terms;  // of each row: log(sum(e^logit)), and what it adds to the loss
  float* scratch;       // of each block for a row
  int64_t scratch_of_block;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t row = block.block(); row < rows; row += block.blocks()) {
      float* widened = scratch + block.block() * scratch_of_block;
      const float* const values = row_values(block, logits, row, widened);
      block.barrier();
      const float sum = lanes::log_of_softmax_sum(BlockLoops<Block>(block), classes, values);
      const int64_t target = targets.at<Block>(row);
      float term = 0;
      if (target != Indices::kNone) term = term_of(block, values, sum, values[target]);
      if (block.thread() == 0) {
        sums[row] = sum;
        terms[row] = term;
      }
      block.barrier();
    }
  }

 private:
  template <class Block>
  ULPSCOPE_DEVICE float term_of(Block& block, const float* values, float sum, float logit) const {
    if (smoothing == 0) return sum - logit;
    const float mean = sum_of<float>(block, classes, [&](int64_t i) { return values[i]; }) / static_cast<float>(classes);
    return sum - (1.0f - smoothing) * logit - smoothing * mean;
  }
};

// Elements of the gradient of rows of classes.
struct ClassGradient {
  Output output;
  int64_t classes;
  Input gradient;  // of the loss, one element
  Indices targets;

  // value(row, target, is_target) of an element, 0 in rows that are ignored.
  template <class Block, class Value>
  ULPSCOPE_DEVICE void put(Block& block, const Value& value) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i), row = e / classes, target = targets.at<Block>(row);
      return target == Indices::kNone ? 0.0f : value(e, row, e - row * classes == target);
    });
  }
};

struct CrossEntropyGradient {
  ClassGradient of;
  Input logits, sums;  // in logical order
  float smoothing;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const float factor = read<Block>(of.gradient, 0) / of.targets.counted();
    const float share = smoothing / static_cast<float>(of.classes);
    of.put(block, [&](int64_t e, int64_t row, bool is_target) {
      const lanes::ExponentialFrom exponential(read<Block>(sums, row));
      const float probability = lanes::evaluate<float>(exponential, read<Block>(logits, e));
      return (probability - (is_target ? 1.0f - smoothing : 0.0f) - share) * factor;
    });
  }
};

struct LikelihoodGradient {
  ClassGradient of;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const float gradient = -read<Block>(of.gradient, 0) / of.targets.counted();
    of.put(block, [&](int64_t, int64_t, bool is_target) { return is_target ? gradient : 0.0f; });
  }
};

// Terms of means (long_sums.h).
struct StoredTerms {
  const float* values;

  template <class Block>
  ULPSCOPE_DEVICE float at(int64_t i) const {
    return values[i];
  }
};
struct LikelihoodTerms {
  Input logarithms;  // in logical order
  int64_t classes;
  Indices targets;

  template <class Block>
  ULPSCOPE_DEVICE float at(int64_t row) const {
    const int64_t target = targets.at<Block>(row);
    return target == Indices::kNone ? 0.0f : -read<Block>(logarithms, row * classes + target);
  }
};
template <class F>
struct ElementTerms {
  F formula;
  Input prediction, target;

  template <class Block>
  ULPSCOPE_DEVICE float at(int64_t i) const {
    return lanes::evaluate<float>(formula, read<Block>(prediction, i), read<Block>(target, i));
  }
};

// A NaN counts as the largest, and no row that has one is right.
struct CountCorrect {
  Input scores;  // in logical order
  int64_t rows, classes;
  Indices targets;
  uint64_t* correct;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t row = block.block(); row < rows; row += block.blocks()) {
      const auto best =
          LargestOfTerms::first_largest(block, classes, [&](int64_t i) { return read<Block>(scores, row * classes + i); });
      const bool is_right = !lanes::is_nan(best.value) && static_cast<int64_t>(best.place) == targets.at<Block>(row);
      if (block.thread() == 0 && is_right) block.add(correct, uint64_t{1});
    }
  }
};

}  // namespace ulpscope::device
