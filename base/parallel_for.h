// Loops whose iterations may run side by side, for libraries that leave threads to their callers.
#pragma once

#include <cstdint>
#include <functional>

namespace ulpscope {

// Runs body(i) for all i in [0, n), in any order, on any threads.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t)>& body)>;

inline void serial_for(int64_t n, const std::function<void(int64_t)>& body) {
  for (int64_t i = 0; i < n; ++i) body(i);
}

}  // namespace ulpscope
