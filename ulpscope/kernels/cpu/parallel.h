// Loops over OpenMP's threads. Bodies neither throw nor allocate.
#pragma once

#include <omp.h>

#include <cstdint>

#include "ulpscope/kernels/cpu/context.h"

namespace ulpscope::cpu {

// Below this many elements a loop that does little with each takes no parallel region: entering one costs 2 to 5 us, and a thread
// handles 2 to 5 thousand elements in a microsecond.
inline constexpr int64_t kParallelElements = 32768;

// body(i) for all i in [0, n), in one contiguous share a thread.
template <typename Body>
void parallel_for(const Context& context, int64_t n, bool worthwhile, Body body) {
  if (!worthwhile || n < 2 || context.threads < 2) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(context.threads)
  for (int64_t i = 0; i < n; ++i) body(i);
}

inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

}  // namespace ulpscope::cpu
