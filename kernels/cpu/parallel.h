// Loops over OpenMP's threads.
#pragma once

#include <omp.h>

#include <cstdint>
#include <exception>

#include "ulpscope/kernels/cpu/context.h"

namespace ulpscope::cpu {

// Below this many elements a loop that does little with each takes no parallel region: entering one costs 2 to 5 us, and a thread
// handles 2 to 5 thousand elements in a microsecond.
inline constexpr int64_t kParallelElements = 32768;

// body(i) for all i in [0, n), in one contiguous share a thread. Where bodies throw, one of their exceptions comes out at the end:
// none may leave a parallel region.
template <typename Body>
void parallel_for(const Context& context, int64_t n, bool worthwhile, Body body) {
  if (!worthwhile || n < 2 || context.threads < 2) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(static) num_threads(context.threads)
  for (int64_t i = 0; i < n; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(ulpscope_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

}  // namespace ulpscope::cpu
