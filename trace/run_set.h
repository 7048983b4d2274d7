// Opens a trace, or those of one run, and follows them while they are written.
//
// A run's traces are parts of it in two ways. In time: a run that was resumed from a checkpoint goes on where it resumed, and what
// earlier ones had from that step on no longer counts; the values that it recorded as it began are left out; a tensor of which the
// type or the arithmetic of its op changed from one run to the next is several. And by rank: processes of one run (RunInfo::run_id)
// have a trace each, `world_size` of them, ranks 0 to world_size - 1.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct ReadOptions {
  uint64_t row_bytes = uint64_t{256} << 20;  // what is kept of tensor rows that were read
};

class RunSet {
 public:
  // Throws Error (unreadable): the path is missing, not a trace, of another schema, or damaged (says where).
  explicit RunSet(const std::string& path, const ReadOptions& options = {});
  // Several as one. `name`: what path() gives and messages call them. Throws Error (usage) where they are not one run, and where a
  // rank is missing or there twice.
  RunSet(const std::string& name, std::span<const std::string> paths, const ReadOptions& options = {});
  ~RunSet();
  RunSet(RunSet&&) noexcept;

  // The newest.
  Snapshot snapshot() const;
  // Makes a newer snapshot where steps were committed since, or a writer ended. True iff there is one. Throws Error (unreadable)
  // where a file was removed, or another one is in its place: snapshots that were made can still be read; and where one was changed
  // after its writer had ended: of that, what was not read yet no longer can be.
  bool refresh();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
