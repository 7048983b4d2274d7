// The one order in which sums are formed, whatever the SIMD width and the number of threads. The terms fall into blocks; within a
// block, term i is added to lane i mod kSumLanes; then lane i and lane i + 8 are added, and so on with 4, 2 and 1; and the blocks
// are merged by a tree of neighbours.
#pragma once

#include <cstdint>

namespace ulpscope {

inline constexpr int kSumLanes = 16;

// Adds the lanes up, which leaves the sum in lanes[0]; with several columns, of which lane i has lanes[i * columns + column], one
// sum for each in the first of them.
template <typename T>
void add_lanes(T* lanes, int64_t columns = 1) {
  for (int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    const int64_t n = width * columns;
    for (int64_t i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
}

// Merges blocks 0, ..., n - 1 into block 0: neighbours first (0 and 1, 2 and 3, ...), and an odd one out moves up unmerged, until
// one is left. merge(to, left, right) and move(to, from) get the blocks' places.
template <typename Merge, typename Move>
void merge_by_tree(int64_t n, Merge merge, Move move) {
  while (n > 1) {
    const int64_t pairs = n / 2;
    for (int64_t i = 0; i < pairs; ++i) merge(i, 2 * i, 2 * i + 1);
    if (n % 2 != 0) move(pairs, n - 1);
    n = pairs + n % 2;
  }
}

// The same of values[0], ..., values[n - 1].
template <typename T, typename Merge>
void merge_by_tree(T* values, int64_t n, Merge merge) {
  merge_by_tree(
      n, [&](int64_t to, int64_t left, int64_t right) { values[to] = merge(values[left], values[right]); },
      [&](int64_t to, int64_t from) { values[to] = values[from]; });
}

}  // namespace ulpscope
