// The one order in which the sums of a tensor are formed, whatever the SIMD width and the number of threads.
#pragma once

#include <cstddef>
#include <vector>

namespace ulpscope {

// Within a block, element i is added to lane i mod 16; then lane i and lane i + 8 are added, and so on with 4, 2 and 1.
inline constexpr int kStatisticsLanes = 16;

struct BlockSums {
  double sum = 0;
  double sum_of_squares = 0;

  BlockSums operator+(const BlockSums& other) const { return {sum + other.sum, sum_of_squares + other.sum_of_squares}; }
};

// Adds neighbours (0 and 1, 2 and 3, ...; an odd last one stays) until one is left. Overwrites `blocks`.
inline BlockSums pairwise_sum(std::vector<BlockSums>& blocks) {
  if (blocks.empty()) return {};
  for (size_t n = blocks.size(); n > 1; n = (n + 1) / 2) {
    for (size_t i = 0; i < n / 2; ++i) blocks[i] = blocks[2 * i] + blocks[2 * i + 1];
    if (n % 2) blocks[n / 2] = blocks[n - 1];
  }
  return blocks[0];
}

}  // namespace ulpscope
