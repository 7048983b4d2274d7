// A producer tells of its own recording what it left out and why, and what that took, in metrics whose names begin
// with "recording." (docs/trace_format.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

bool is_of_coverage(const EventRow& event);

// The sum over all ranks.
struct Coverage {
  bool is_told = false;
  uint64_t calls = 0;                        // of ops that were recorded
  std::map<std::string, uint64_t> not_read;  // those that were not, by what their tensors are
  std::map<std::string, uint64_t> unmapped;  // recorded, by name, without the forward op that they belong to
  uint64_t refused = 0;                      // by the recorder
  uint64_t compiled_modules = 0;             // of which only some ops are seen
  uint64_t calls_of_other_threads = 0;       // of modules
  uint64_t paused_blocks = 0;
  uint64_t timed_steps = 0;
  double timed_seconds = 0, recording_seconds = 0;  // of these steps, and that training waited for the recording in them

  uint64_t calls_not_read() const;
};
Coverage coverage_of(const Snapshot& trace);

}  // namespace ulpscope
