// Reductions over dimensions: a block of the grid takes one element of the output after another, and its threads the terms.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/sums.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::device {

struct ReductionTensors {
  Input input;
  ElementOrder kept, reduced;  // term i of output o lies at the sum of both offsets
  int64_t outputs, terms;
  float* values[2];  // of each output slot, in logical order
};

// `op`: op(block, n, term) gives the values of an output's slots to all threads.
template <class Op>
struct Reduction {
  Op op;
  ReductionTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t o = block.block(); o < tensors.outputs; o += block.blocks()) {
      const int64_t start = tensors.kept.offset_of(o);
      const auto term = [&](int64_t i) { return read_at<Block>(tensors.input, start + tensors.reduced.offset_of(i)); };
      const auto slots = op(block, tensors.terms, term);
      if (block.thread() != 0) continue;
      for (int slot = 0; slot < Op::kSlots; ++slot) tensors.values[slot][o] = slots.of[slot];
    }
  }
};

template <int kSlots>
struct Slots {
  float of[kSlots];
};

struct SumOfTerms {
  static constexpr int kSlots = 1;
  bool is_mean;

  template <class Block, class Term>
  ULPSCOPE_DEVICE Slots<1> operator()(Block& block, int64_t n, const Term& term) const {
    const float total = sum_of<float>(block, n, term);
    return {{is_mean ? total / static_cast<float>(n) : total}};
  }
};

// And the mean.
struct VarianceOfTerms {
  static constexpr int kSlots = 2;
  double correction;

  template <class Block, class Term>
  ULPSCOPE_DEVICE Slots<2> operator()(Block& block, int64_t n, const Term& term) const {
    const float mean = sum_of<float>(block, n, term) / static_cast<float>(n);
    const float squares = sum_of<float>(block, n, [&](int64_t i) {
      const float difference = term(i) - mean;
      return difference * difference;
    });
    const double degrees = static_cast<double>(n) - correction;
    return {{squares / static_cast<float>(degrees > 0 ? degrees : 0), mean}};
  }
};

// Squares are added in FP64.
struct NormOfTerms {
  static constexpr int kSlots = 1;

  template <class Block, class Term>
  ULPSCOPE_DEVICE Slots<1> operator()(Block& block, int64_t n, const Term& term) const {
    return {{static_cast<float>(lanes::square_root(sum_of<double>(block, n, [&](int64_t i) {
      const double value = term(i);
      return value * value;
    })))}};
  }
};

struct Candidates {
  using Element = float;
  static constexpr int kSize = kMostThreads / kWarpThreads;
  static constexpr const char* kName = "largest of warps";
};
struct CandidatePlaces {
  using Element = uint32_t;
  static constexpr int kSize = kMostThreads / kWarpThreads;
  static constexpr const char* kName = "places of the largest of warps";
};

// The largest value, the first of equal ones, and how often it occurs; NaN, 0 times, where there is a NaN.
struct LargestOfTerms {
  static constexpr int kSlots = 2;
  struct Candidate {
    float value;
    uint32_t place;
  };

  template <class Block, class Term>
  ULPSCOPE_DEVICE Slots<2> operator()(Block& block, int64_t n, const Term& term) const {
    const auto places = block.template shared<CandidatePlaces>();
    const Candidate best = first_largest(block, n, term);
    uint32_t equal = 0;
    for (int64_t i = block.thread(); i < n; i += block.threads()) equal += term(i) == best.value;
    const uint32_t of_warp = block.sum(equal);
    if (block.lane() == 0) places.write(block.warp(), of_warp);
    block.barrier();
    uint32_t count = 0;
    for (int warp = 0; warp < block.warps(); ++warp) count += places.read(warp);
    block.barrier();
    return {{best.value, static_cast<float>(count)}};
  }

  // For all threads.
  template <class Block, class Term>
  ULPSCOPE_DEVICE static Candidate first_largest(Block& block, int64_t n, const Term& term) {
    const auto values = block.template shared<Candidates>();
    const auto places = block.template shared<CandidatePlaces>();
    Candidate best{term(0), 0};
    for (int64_t i = block.thread(); i < n; i += block.threads()) best = better(best, {term(i), static_cast<uint32_t>(i)});
    for (int width = kWarpThreads / 2; width > 0; width /= 2) {
      const float value = block.shuffle_down(best.value, width);
      best = better(best, {value, block.shuffle_down(best.place, width)});
    }
    if (block.lane() == 0) {
      values.write(block.warp(), best.value);
      places.write(block.warp(), best.place);
    }
    block.barrier();
    best = {values.read(0), places.read(0)};
    for (int warp = 1; warp < block.warps(); ++warp) best = better(best, {values.read(warp), places.read(warp)});
    block.barrier();
    return best;
  }

 private:
  ULPSCOPE_DEVICE static Candidate better(const Candidate& a, const Candidate& b) {
    const bool is_first = a.place < b.place;
    if (lanes::is_nan(a.value) || lanes::is_nan(b.value))
      return lanes::is_nan(a.value) && (is_first || !lanes::is_nan(b.value)) ? a : b;
    return a.value > b.value || (a.value == b.value && is_first) ? a : b;
  }
};

// Of the weight and bias of a normalization over rows, a block of the grid takes one element after another.
struct WeightGradient {
  int64_t rows, n;
  Input gradient, x, mean, inverse;  // in logical order
  bool has_mean;
  ElementOrder bias_rows;  // the rows of the gradient in its memory order
  float* values[2];        // dweight, dbias or nullptr

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t c = block.block(); c < n; c += block.blocks()) {
      const float weight = sum_of<float>(block, rows, [&](int64_t row) {
        const lanes::WeightTerms term(has_mean ? read<Block>(mean, row) : 0.0f, read<Block>(inverse, row));
        return lanes::evaluate<float>(term, read<Block>(gradient, row * n + c), read<Block>(x, row * n + c));
      });
      if (block.thread() == 0) values[0][c] = weight;
      if (values[1] == nullptr) continue;
      const int64_t column = gradient.elements.offset_of(c);
      const float bias =
          sum_of<float>(block, rows, [&](int64_t i) { return read_at<Block>(gradient, column + bias_rows.offset_of(i)); });
      if (block.thread() == 0) values[1][c] = bias;
    }
  }
};

}  // namespace ulpscope::device
