// --threads, of the verbs that compute.
#pragma once

#include "ulpscope/base/error.h"
#include "ulpscope/cli/verb.h"
#include "ulpscope/core/run/capsule.h"

namespace ulpscope::cli {

// 0: one a core, or what a capsule had. Throws Error (usage).
inline int threads_of(const Arguments& arguments) {
  const int64_t threads = arguments.integer("--threads", 0).value_or(0);
  if (threads > kMostThreads) throw usage_error("--threads: expected at most {}, got {}", kMostThreads, threads);
  return static_cast<int>(threads);
}

}  // namespace ulpscope::cli
