// --threads, of the verbs that compute.
#pragma once

#include "ulpscope/base/error.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// More than any machine has cores, and few enough for their stacks.
inline constexpr int64_t kMaximumThreads = 1024;

// 0: one a core, or what a capsule had. Throws Error (usage).
inline int threads_of(const Arguments& arguments) {
  const int64_t threads = arguments.integer("--threads", 0).value_or(0);
  if (threads > kMaximumThreads) throw usage_error("--threads: expected at most {}, got {}", kMaximumThreads, threads);
  return static_cast<int>(threads);
}

}  // namespace ulpscope::cli
