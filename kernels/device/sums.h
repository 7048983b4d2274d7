// Sums by the threads of a block, in the order of reduction_order.h.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/reduction_order.h"

namespace ulpscope::device {

// Of blocks of kReductionBlock terms, and of so many of such blocks: a power of two, so that they are whole branches of the tree.
template <typename T>
struct PartialSums {
  using Element = T;
  static constexpr int kSize = 512;
  static constexpr const char* kName = "partial sums";
};
template <typename T>
struct BranchSums {
  using Element = T;
  static constexpr int kSize = 1024;
  static constexpr const char* kName = "sums of branches";
};
inline constexpr int64_t kBranch = PartialSums<float>::kSize * kReductionBlock, kMostTerms = BranchSums<float>::kSize * kBranch;

// Adds the first n > 0 elements up: neighbours first, so that each step leaves sums at multiples of twice the distance. All were
// written before a barrier; the sum is in element 0, behind one.
template <class Block, class Sums>
ULPSCOPE_DEVICE void add_neighbours(Block& block, const Sums& sums, int n) {
  for (int distance = 1; distance < n; distance *= 2) {
    for (int i = 2 * distance * block.thread(); i + distance < n; i += 2 * distance * block.threads())
      sums.write(i, sums.read(i) + sums.read(i + distance));
    block.barrier();
  }
}

template <class Block>
ULPSCOPE_DEVICE float shuffle_sum(Block& block, float value, int lanes) {
  return value + block.shuffle_down(value, lanes);
}
template <class Block>
ULPSCOPE_DEVICE double shuffle_sum(Block& block, double value, int lanes) {
  return value + shuffle_down(block, value, lanes);
}

// Adds n numbers up, each the sum of a branch of the tree, for all threads; `fill(first, count)` writes the next `count` of them to
// PartialSums. n > 0, and at most as many as both arrays hold.
template <typename T, class Block, class Fill>
ULPSCOPE_DEVICE T add_branches(Block& block, int64_t n, const Fill& fill) {
  constexpr int64_t kTogether = PartialSums<T>::kSize;
  const auto partial = block.template shared<PartialSums<T>>();
  const auto of_branches = block.template shared<BranchSums<T>>();
  const auto branches = static_cast<int>((n + kTogether - 1) / kTogether);
  for (int branch = 0; branch < branches; ++branch) {
    const int64_t first = branch * kTogether;
    const auto count = static_cast<int>(n - first < kTogether ? n - first : kTogether);
    fill(first, count);
    block.barrier();
    add_neighbours(block, partial, count);
    if (block.thread() == 0) of_branches.write(branch, partial.read(0));
    block.barrier();
  }
  add_neighbours(block, of_branches, branches);
  return of_branches.read(0);
}

// term(0) + ... + term(n - 1) in T, float or double, for all threads; n <= kMostTerms.
template <typename T, class Block, class Term>
ULPSCOPE_DEVICE T sum_of(Block& block, int64_t n, const Term& term) {
  static_assert(kWarpThreads == 2 * kSumLanes);
  if (n == 0) return 0;
  const auto partial = block.template shared<PartialSums<T>>();
  // Half a warp has the lanes of a block of terms.
  const int lane = block.lane() % kSumLanes, half = block.lane() / kSumLanes;
  return add_branches<T>(block, (n + kReductionBlock - 1) / kReductionBlock, [&](int64_t first_block, int blocks) {
    for (int first = 2 * block.warp(); first < blocks; first += 2 * block.warps()) {
      const int64_t begin = (first_block + first + half) * kReductionBlock,
                    end = begin + kReductionBlock < n ? begin + kReductionBlock : n;
      T total = 0;
      for (int64_t i = begin + lane; i < end; i += kSumLanes) total += term(i);
      for (int width = kSumLanes / 2; width > 0; width /= 2) total = shuffle_sum(block, total, width);
      if (lane == 0 && first + half < blocks) partial.write(first + half, total);
    }
  });
}

// Of parts that are whole branches of the tree.
template <typename T, class Block>
ULPSCOPE_DEVICE T sum_of_parts(Block& block, const T* parts, int64_t n) {
  if (n == 0) return 0;
  const auto partial = block.template shared<PartialSums<T>>();
  return add_branches<T>(block, n, [&](int64_t first, int count) {
    for (int i = block.thread(); i < count; i += block.threads()) partial.write(i, parts[first + i]);
  });
}

}  // namespace ulpscope::device
